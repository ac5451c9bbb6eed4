"""What charts say: lengths, places, colours, marks; and that each file of one stands alone."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from itertools import pairwise

import pytest

from strobe.present.charts.bars import Bar, bars
from strobe.present.charts.lines import SERIES, Point, Series, apart, lines
from strobe.present.charts.rows import Segment, Stack, stacked, stacks
from strobe.present.charts.scale import Scale, along, around_one, axis, ticks
from strobe.present.charts.svg import Picture
from strobe.present.page import asset, colours
from strobe.present.raster import contrast
from support.pages import numbers, of_class

TEXT, SHAPE = 4.5, 3.0  # contrast, by WCAG 2.2, success criteria 1.4.3 and 1.4.11
TEXTS = ("ink", "soft", "accent", "good", "fair", "bad")
PHASES = ("data_wait", "transfer", "forward", "backward", "optimizer", "callbacks", "other")


def drawn(parts: Iterable[str] | str) -> ET.Element:
    return ET.fromstring(f"<g>{parts if isinstance(parts, str) else ''.join(parts)}</g>")


def texts(parts: Iterable[str], css: str = "") -> list[str | None]:
    return [one.text for one in drawn(parts).iter("text") if not css or css in (one.get("class") or "")]


@pytest.mark.parametrize("top", [0.003, 0.9, 1, 7, 99, 1234, 5e6])
def test_ticks_are_round_and_few(top: float) -> None:
    marks = ticks(top)
    assert marks[0] == 0
    assert 3 <= len(marks) <= 6
    assert marks[-1] <= top < marks[-1] + marks[1] * 1.0001


@pytest.mark.parametrize("top", [0.0031, 1.2, 97, 5400, 3e7])
@pytest.mark.parametrize("span", [1.5, 8, 300, 1e5])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_marks_of_an_axis_are_round_few_and_on_it(top: float, span: float, logarithmic: bool) -> None:
    scale = axis([top, top / span], logarithmic=logarithmic)
    marks = scale.marks()
    assert 2 <= len(marks) <= 6
    assert marks == sorted(set(marks))
    assert all(scale.start * 0.99 <= mark <= scale.end * 1.01 for mark in marks)
    assert all(float(f"{mark:.1e}") == pytest.approx(mark) for mark in marks)
    assert 0 <= scale.place(top / span) < scale.place(top) <= 1
    assert scale.place(top) > 0.8 or (logarithmic and span < 10)


@pytest.mark.parametrize(
    "values", [[], [1.0], [0.98, 1.02], [0.5, 3.0], [0.02, 50.0], [1e-9, 1e9], [float("inf"), -1.0, 0.0]]
)
def test_an_axis_of_ratios_holds_one_and_round_numbers(values: list[float]) -> None:
    scale, marks = around_one(values)
    assert scale.start < 1 < scale.end
    assert 1.0 in marks
    assert len(marks) <= 15
    assert all(scale.start <= mark <= scale.end for mark in marks)


def test_settings_lie_by_factors_where_that_sets_them_apart() -> None:
    assert along([1, 2, 4, 8, 16], logarithmic=False).logarithmic
    assert not along([10, 20, 30, 40], logarithmic=False).logarithmic
    assert along([10, 20, 30, 40], logarithmic=True).logarithmic
    assert along([0, 1, 2, 4], logarithmic=True) == Scale(0, 4)
    assert along([3], logarithmic=True).place(3) == 0.5


def three(*, logarithmic: bool) -> Picture:
    return bars(
        "Three",
        "ms",
        ["A group", *(Bar(f"way {ms}", "", "s1", "", ms, 0.9 * ms, 1.1 * ms) for ms in (1.0, 10.0, 100.0))],
        logarithmic=logarithmic,
    )


def test_bars_are_as_long_as_their_values_with_whiskers_at_their_intervals() -> None:
    plot = drawn(three(logarithmic=False).plot)
    widths = [numbers(bar, "width")[0] for bar in of_class(plot, "bar")]
    assert [width / widths[-1] for width in widths] == pytest.approx([0.01, 0.1, 1], abs=2e-4)
    spans = [numbers(one, "x1", "x2") for one in of_class(plot, "whisker") if one.get("y1") == one.get("y2")]
    ends = [end / widths[-1] for span in spans for end in span]
    assert ends == pytest.approx([0.009, 0.011, 0.09, 0.11, 0.9, 1.1], abs=4e-3)
    assert texts(three(logarithmic=False).before, "group") == ["A group"]
    by_factors = three(logarithmic=True)
    widths = [numbers(bar, "width")[0] for bar in of_class(drawn(by_factors.plot), "bar")]
    assert widths[1] - widths[0] == pytest.approx(widths[2] - widths[1], abs=0.02)
    assert "ms; logarithmic scale" in texts(by_factors.before)


def series(*names: str) -> list[Series]:
    points = {place: Point(10 * place, 9 * place, 11 * place, "") for place in (1, 2, 4, 16)}
    return [Series(name, "s1", points) for name in names]


def test_lines_have_points_within_their_intervals_and_gaps_where_nothing_is() -> None:
    found = series("whole", "torn")
    broken = Series("torn", "s2", {place: point for place, point in found[1].points.items() if place != 2})
    names = dict.fromkeys((1, 2, 4, 8, 16), "")
    up = axis([176.0], logarithmic=False)
    plot = drawn(lines("Two", "ms", [found[0], broken], names, below="size", up=up).plot)
    assert [len(of_class(plot, kind)) for kind in ("point", "interval")] == [7, 7]
    assert [way.attrib["d"].count("L") for way in of_class(plot, "series")] == [2]  # 8 is missing, and 2 of the other
    zero, one = (1 - up.place(value) for value in (0, 100))
    for point, spread in zip(of_class(plot, "point"), of_class(plot, "interval"), strict=True):
        (height,), (low, high) = numbers(point, "cy"), numbers(spread, "y1", "y2")
        assert low > height > high
    heights = [numbers(point, "cy")[0] for point in of_class(plot, "point")[:4]]
    assert (heights[0] - heights[3]) / 290 == pytest.approx((zero - one) * 1.5, abs=0.01)
    places = [numbers(point, "cx")[0] for point in of_class(plot, "point")[:3]]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.02)  # 1, 2 and 4 by factors
    picture = lines("Many", "ms", series(*"abcdefghijklmnopqrstuvwxyz"), names, below="size", up=up)
    ends = sorted(numbers(text, "y")[0] for text in drawn(picture.after).iter("text"))
    assert len(ends) == 26
    assert min(later - earlier for earlier, later in pairwise(ends)) >= 15 - 0.1
    assert ends[-1] <= picture.height


@pytest.mark.parametrize("places", [[5.0], [50.0, 50.0, 50.0], [0.0, 1.0, 2.0], [99.0, 100.0], [10.0, 40.0, 90.0]])
def test_labels_move_apart_in_their_order(places: list[float]) -> None:
    found = apart(places, 0.0, 100.0, 15.0)
    order = sorted(range(len(places)), key=lambda number: places[number])
    assert all(found[later] - found[earlier] >= 15 - 1e-9 for earlier, later in pairwise(order))
    assert all(0 <= place <= 100 for place in found)
    assert apart([10.0, 40.0, 90.0], 0.0, 100.0, 15.0) == [10.0, 40.0, 90.0]


def test_a_file_stands_alone() -> None:
    picture = three(logarithmic=True)
    text = picture.file("A <title>", "two cores · quick mode")
    root = ET.fromstring(text)
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert "prefers-color-scheme: dark" in text
    assert "".join(picture.plot) in text  # what a page embeds
    assert "A &lt;title&gt;" in text
    assert re.findall(r"(?:https?:)?//[a-z][^\"']*", text) == ["http://www.w3.org/2000/svg"]
    assert set(re.findall(r"var\(--([\w-]+)[,)]", text)) <= {*re.findall(r"--([\w-]+):", text)}


def test_a_stacked_bar_is_filled_in_shares_on_the_scale_it_is_given() -> None:
    parts = [Segment("data wait", "data_wait", 0.6), Segment("forward", "forward", 0.3), Segment("idle", "idle", 0.1)]
    for widest in (1.0, 2.0):
        chart = stacked("Host", parts, 1.0, widest)
        found = [numbers(bar, "x", "width") for bar in of_class(drawn(chart.drawing), "fill")]
        spans = [place for span in found for place in span]
        assert spans == pytest.approx([place / widest for place in (0, 60, 60, 30, 90, 10)], abs=0.01)
    assert [one["share"] for one in chart.legend] == ["60%", "30%", "10%"]
    assert "data wait 60%, forward 30%" in chart.drawing


def test_stacked_rows_share_an_axis() -> None:
    rows = stacks([Stack("a", "a", [Segment("x", "s1", 1e-3)]), Stack("b", "b", [Segment("x", "s1", 4e-3)])], "a step")
    widths = [numbers(of_class(drawn(each.drawing), "fill")[0], "width")[0] for each in rows.lines]
    assert widths == pytest.approx([25, 100])
    assert rows.unit == "ms a step"
    assert stacks([Stack("a", "a", [Segment("x", "s1", 1e-5)])]).unit == "µs an image"


def schemes() -> dict[str, dict[str, str]]:
    """The colours by name, in light and in dark."""
    light: dict[str, str] = {}
    dark: dict[str, str] = {}
    for before, block in re.findall(r"([^{}]*)\{?\s*:root \{(.*?)\}", colours(), re.DOTALL):
        found = dict(re.findall(r"--([\w-]+): (?:var\(--)?(#?[\w-]+)", block))
        (dark if "dark" in before else light).update(found)
    return {"light": light, "dark": light | dark}


def colour(scheme: dict[str, str], name: str) -> str:
    found = scheme[name]
    if not found.startswith("#"):
        return colour(scheme, found)
    return found if len(found) == 7 else "#" + "".join(2 * digit for digit in found[1:])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_suffices(scheme: str) -> None:
    known = schemes()[scheme]

    def between(one: str, other: str) -> float:
        return contrast(colour(known, one), colour(known, other))

    for name in TEXTS:
        assert min(between(name, "paper"), between(name, "wash")) >= TEXT, name
    for phase in PHASES:
        assert between(phase, f"on-{phase}") >= TEXT, phase
        assert between(phase, "paper") >= SHAPE, phase
    assert between("ink", "idle") >= TEXT
    names = [f"s{number}" for number in range(1, SERIES + 1)]
    assert len({colour(known, name) for name in names}) == SERIES
    for name in names:
        assert between(name, "paper") >= SHAPE, name
        assert f".{name} {{ --c: var(--{name});" in asset("charts.css")
