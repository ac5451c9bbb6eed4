"""The pictures of a suite: lengths, places, intervals, and that each file stands alone."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from strobe.bench.harness.declare import Cell, Table
from strobe.bench.harness.wording import figure
from strobe.bench.page import write_pictures
from strobe.bench.page.lines import apart
from strobe.bench.page.page import draw
from strobe.bench.page.picture import STYLE
from strobe.bench.page.scale import Scale, along, axis
from strobe.bench.page.shown import SERIES, shown_of, slug
from strobe.bench.suites.convolution.study import LARGEST
from strobe.report.colours import contrast
from strobe.report.html.page import COLOURS
from support.suite_records import loading, nothing, record_of, suite_of, workers

SHAPE = 3.0  # WCAG 2.2, success criterion 1.4.11


def three(*, logarithmic: bool, rates: Sequence[float] = (4000.0, 1000.0, 100.0)) -> Any:
    """A table with bars of three rates in one row."""
    cells = [Cell("t", "", f"column {number}", nothing) for number in range(len(rates))]
    suite = suite_of(cells, [Table("t", "Three", logarithmic=logarithmic)])
    known = {cell.name: rate for cell, rate in zip(cells, rates, strict=True)}
    (shown,) = shown_of(suite, record_of(suite, known))
    return shown


def drawn(parts: Sequence[str], css: str, *attributes: str) -> list[tuple[float, ...]]:
    """The attributes of the elements of a class, without their signs for percent."""
    found = []
    for element in re.findall(rf'<\w+ class="{css}[ "][^>]*>', "".join(parts)):
        values = dict(re.findall(r'([\w-]+)="([-0-9.]+)%?"', element))
        found.append(tuple(float(values[name]) for name in attributes))
    return found


def test_bars_are_as_long_as_their_values() -> None:
    shown = three(logarithmic=False)
    values = [shown.value(cell) for cell in shown.cells]
    plot = draw(shown).plot
    widths = [width for (width,) in drawn(plot, "bar", "width")]
    assert [width / widths[0] for width in widths] == [
        pytest.approx(value.median / values[0].median, abs=1e-3) for value in values
    ]
    ends = [places for places in drawn(plot, "whisker", "x1", "x2") if places[0] != places[1]]
    scale = widths[0] / values[0].median
    assert ends == [pytest.approx((value.low * scale, value.high * scale), abs=0.02) for value in values]


def test_bars_on_a_logarithmic_scale_are_as_long_as_the_logarithms() -> None:
    shown = three(logarithmic=True)
    first, second, third = (math.log(shown.value(cell).median) for cell in shown.cells)
    widths = [width for (width,) in drawn(draw(shown).plot, "bar", "width")]
    assert (widths[0] - widths[1]) / (widths[1] - widths[2]) == pytest.approx(
        (first - second) / (second - third), abs=1e-3
    )
    assert 0 < widths[2] < widths[1] < widths[0] <= 100


def test_every_measured_cell_has_a_bar_with_its_interval_and_its_figure() -> None:
    suite, record = loading()
    (shown,) = shown_of(suite, record)
    picture = draw(shown)
    assert len(drawn(picture.plot, "bar", "width")) == 48
    assert len(drawn(picture.plot, "whisker", "x1")) == len(drawn(picture.plot, "halo", "x1")) == 3 * 48
    told = re.findall(r'text-anchor="end">([^<]+)<', "".join(picture.before))
    assert told == [figure(shown.value(cell).median) for cell in record["cells"]]
    assert re.findall(r'class="group"[^>]*>([^<]+)<', "".join(picture.before)) == [
        f"Batch size {size}" for size in (1, 32, 64, 1024)
    ]


def test_a_cell_that_failed_or_waits_has_a_name_and_no_bar() -> None:
    cells = [Cell("t", "row", name, nothing) for name in ("fine", "broken", "later")]
    suite = suite_of(cells, [Table("t", "Some")])
    (shown,) = shown_of(suite, record_of(suite, {cells[0].name: 10.0, cells[1].name: "DataError: no"}))
    picture = draw(shown)
    assert len(drawn(picture.plot, "bar", "width")) == 1
    names = re.findall(r">([^<]+)</text>", "".join(picture.before))
    assert {"broken", "failed", "later", "waiting"} < set(names)


def test_lines_have_a_point_for_each_measured_cell_and_gaps_for_the_others() -> None:
    suite, record = workers()
    shown = shown_of(suite, record)[0]
    plot = draw(shown).plot
    measured = [cell for cell in shown.cells if cell["status"] == "measured"]
    points = drawn(plot, "point", "cx", "cy")
    assert len(points) == len(measured) == 22
    assert len(drawn(plot, "interval", "y1")) == 22
    assert len(re.findall(r'<path class="series', "".join(plot))) == 5  # SPDL's in two parts
    native = drawn(plot, f"point {shown.css(shown.cells[3])}", "cx", "cy")
    steps = [later[0] - earlier[0] for earlier, later in pairwise(native)]
    assert steps == pytest.approx([steps[0]] * 4, abs=0.02)  # 1, 2, 4, 8 and 16 workers by factors
    assert [y for _, y in native] == sorted((y for _, y in native), reverse=True)


def test_points_lie_within_their_intervals_at_the_height_of_their_values() -> None:
    suite, record = workers()
    shown = shown_of(suite, record)[0]
    plot = draw(shown).plot
    values = [
        value
        for name in shown.columns
        for cell in shown.cells
        if cell["column"] == name and (value := shown.value(cell))
    ]
    heights = [y for (y,) in drawn(plot, "point", "cy")]
    scale = (heights[1] - heights[0]) / (values[1].median - values[0].median)
    zero = heights[0] - scale * values[0].median
    for value, height, (low, high) in zip(values, heights, drawn(plot, "interval", "y1", "y2"), strict=True):
        assert height == pytest.approx(zero + scale * value.median, abs=1.0)
        assert (low, high) == pytest.approx((zero + scale * value.low, zero + scale * value.high), abs=1.0)


def test_names_at_the_lines_ends_do_not_overlap() -> None:
    names = [f"way {number}" for number in range(30)]
    cells = [Cell("t", str(at), name, nothing, at=float(at)) for at in (1, 2) for name in names]
    suite = suite_of(cells, [Table("t", "Many", chart="lines", rows="size")])
    (shown,) = shown_of(suite, record_of(suite, {cell.name: 100.0 for cell in cells}))
    picture = draw(shown)
    places = sorted(y for (y,) in drawn(picture.after, "end", "y"))
    assert len(places) == 30
    assert min(later - earlier for earlier, later in pairwise(places)) >= 15 - 0.1
    assert places[-1] <= picture.height


@pytest.mark.parametrize("places", [[5.0], [50.0, 50.0, 50.0], [0.0, 1.0, 2.0], [99.0, 100.0], [10.0, 40.0, 90.0]])
def test_labels_move_apart_in_their_order(places: list[float]) -> None:
    found = apart(places, 0.0, 100.0, 15.0)
    order = sorted(range(len(places)), key=lambda number: places[number])
    assert all(found[later] - found[earlier] >= 15 - 1e-9 for earlier, later in pairwise(order))
    assert all(0 <= place <= 100 for place in found)
    assert apart([10.0, 40.0, 90.0], 0.0, 100.0, 15.0) == [10.0, 40.0, 90.0]


def test_rows_without_a_place_stand_one_after_the_other() -> None:
    cells = [Cell("t", row, "way", nothing) for row in ("first", "second", "third")]
    suite = suite_of(cells, [Table("t", "Stages", chart="lines", rows="stage")])
    (shown,) = shown_of(suite, record_of(suite, {cell.name: 100.0 for cell in cells}))
    plot = draw(shown).plot
    first, second, third = (x for (x,) in drawn(plot, "point", "cx"))
    assert second - first == pytest.approx(third - second)
    assert [name for name in ("first", "second", "third") if f">{name}</text>" in "".join(plot)] == [
        "first",
        "second",
        "third",
    ]


@pytest.mark.parametrize("made", [loading, workers])
def test_files_stand_alone(tmp_path: Path, made: Any) -> None:
    suite, record = made(quick=True)
    paths = write_pictures(tmp_path, suite, record)
    assert [path.name for path in paths] == [f"{slug(table.name)}.svg" for table in suite.tables]
    for path, shown in zip(paths, shown_of(suite, record), strict=True):
        text = path.read_text(encoding="utf-8")
        root = ET.fromstring(text)
        assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
        assert float(root.get("width", "")) > 0
        assert "prefers-color-scheme: dark" in text
        assert "quick mode" in text
        assert shown.table.title in text
        assert "".join(draw(shown).plot) in text  # what the page embeds
        assert re.findall(r"(?:https?:)?//[a-z][^\"']*", text) == ["http://www.w3.org/2000/svg"]
        used = set(re.findall(r"var\(--([\w-]+)\)", text))
        assert used <= set(re.findall(r"--([\w-]+):", text))


def test_pictures_of_tables_with_like_names_have_files_of_their_own(tmp_path: Path) -> None:
    suite = suite_of([], [Table("A b", "One"), Table("a/B", "Two"), Table("µ", "Three", chart="lines")])
    paths = write_pictures(tmp_path, suite, record_of(suite, {}))
    assert [path.name for path in paths] == ["a-b.svg", "a-b-2.svg", "table.svg"]
    assert all("Nothing was measured." in path.read_text() for path in paths)


def test_a_column_has_one_colour_in_all_tables() -> None:
    suite, record = workers()
    over, stages = shown_of(suite, record)
    (css,) = {stages.css(cell) for cell in stages.cells}
    assert {over.css(cell) for cell in over.cells if cell["column"] == "native pool"} == {css}
    assert len({over.css(cell) for cell in over.cells}) == 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_series_stand_out(scheme: str) -> None:
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6})\b", block))
        for block in re.findall(r":root \{(.*?)\}", COLOURS, re.DOTALL)
    )
    colours = light if scheme == "light" else light | dark
    first, second = (
        dict(re.findall(r"--(s\d+): (?:var\(--)?([#\w-]+)", block))
        for block in re.findall(r":root \{(.*?)\}", STYLE, re.S)
    )
    series = first if scheme == "light" else first | second
    known = {name: colours.get(given, given) for name, given in series.items()}
    assert len(set(known.values())) == len(known) == SERIES
    assert len(LARGEST) <= SERIES  # of the suite with the most columns
    for name, colour in known.items():
        assert contrast(colour, colours["paper"]) >= SHAPE, name
        assert f".{name} {{ --c: var(--{name}); }}" in STYLE


@pytest.mark.parametrize("top", [0.0031, 1.2, 97, 5400, 3e7])
@pytest.mark.parametrize("span", [1.5, 8, 300, 1e5])
def test_marks_of_an_axis_are_round_few_and_on_it(top: float, span: float) -> None:
    for logarithmic in (False, True):
        scale = axis([top, top / span], logarithmic=logarithmic)
        marks = scale.marks()
        assert 2 <= len(marks) <= 6
        assert marks == sorted(set(marks))
        assert all(scale.start * 0.99 <= mark <= scale.end * 1.01 for mark in marks)
        assert all(float(f"{mark:.1e}") == pytest.approx(mark) for mark in marks)
        assert 0 <= scale.place(top / span) < scale.place(top) <= 1
        assert scale.place(top) > 0.8 or (logarithmic and span < 10)


def test_settings_lie_by_factors_where_that_sets_them_apart() -> None:
    assert along([1, 2, 4, 8, 16], logarithmic=False).logarithmic
    assert not along([10, 20, 30, 40], logarithmic=False).logarithmic
    assert along([10, 20, 30, 40], logarithmic=True).logarithmic
    assert along([0, 1, 2, 4], logarithmic=True) == Scale(0, 4)
    assert along([3], logarithmic=True).place(3) == 0.5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.4, "1,234"),
        (99.96, "100"),
        (45.67, "45.7"),
        (4.567, "4.57"),
        (0.012345, "0.0123"),
        (0.0, "0"),
        (1e7, "10,000,000"),
    ],
)
def test_figures_have_three_digits_at_least(value: float, text: str) -> None:
    assert figure(value) == text
