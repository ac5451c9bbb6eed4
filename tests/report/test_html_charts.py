"""What the report's pictures say: lengths, places, colours."""

import re
import time
from typing import Any

import pytest

from strobe.records.run import Record
from strobe.report.html import render
from strobe.report.html.drawing import ticks
from strobe.report.html.page import STYLE
from strobe.report.html.text import duration, milliseconds, rate, size
from strobe.report.html.throughput import MOST_DOTS, throughput
from support.pages import PHASES, complete, page_of, steps

LIMIT = 5_000_000  # bytes of a report
TEXT, SHAPE = 4.5, 3.0  # WCAG 2.2, success criteria 1.4.3 and 1.4.11
TEXTS = ("ink", "soft", "accent", "good", "fair", "bad")


def numbers(picture: str, element: str, css: str, attribute: str) -> list[float]:
    found = re.findall(rf'<{element} class="{css}"[^>]*? {attribute}="([0-9.]+)%?"', picture)
    return [float(value) for value in found]


def part(summary: dict[str, Any], name: str) -> str:
    text = render(Record(summary), steps(20))
    return text[text.index(f'<section id="{name}">') :].partition("</section>")[0]


def test_a_steps_phases_fill_the_bar_in_their_shares() -> None:
    host, device = re.findall(r'<svg class="stack".*?</svg>', part(complete(), "step"))
    whole = sum(PHASES.values())
    for phase, milliseconds_of_it in PHASES.items():
        assert numbers(host, "rect", f"fill {phase}", "width") == [
            pytest.approx(100 * milliseconds_of_it / whole, abs=0.01)
        ]
    ends = sorted(
        start + width
        for start, width in zip(
            *([float(value) for value in re.findall(rf' {name}="([0-9.]+)%"', host)] for name in ("x", "width")),
            strict=False,
        )
    )
    assert ends[-1] <= 100.1
    assert numbers(device, "rect", "fill idle", "width") == [pytest.approx(60, abs=0.1)]


def test_a_device_that_takes_longer_sets_the_scale() -> None:
    summary = complete()
    summary["device_seconds"] = {"total": 0.081, "forward": 0.081, "idle": 0.0}
    host, device = re.findall(r'<svg class="stack".*?</svg>', part(summary, "step"))
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([0-9.]+)%"', host)]
    assert sum(widths) == pytest.approx(50, abs=0.2)
    assert numbers(device, "rect", "fill forward", "width") == [100.0]


def test_the_bracket_is_one_scale_and_shows_what_lies_beyond() -> None:
    picture = part(complete(), "ceilings")
    (loader,) = numbers(picture, "rect", "fill rate-loader", "width")
    (measured,) = numbers(picture, "rect", "fill rate-measured", "width")
    assert measured / loader == pytest.approx(3180 / 3230, abs=0.001)
    assert numbers(picture, "rect", "fill rate-transfer", "width") == [100.0]
    assert picture.count('class="gap"') == 2  # the transfer's bar goes on; the others end
    assert picture.count('class="whisker"') == 3 * 3


def test_shared_cores_are_told() -> None:
    summary = complete()
    summary["ceilings"] |= {"shared_cores": True, "joint": 2500.0}
    page, _ = page_of(summary)
    assert "compete for the same cores, so neither ceiling can be reached" in page.text
    assert "together they can reach 2,500 images/s" in page.text
    assert "of the ceiling 98% 2,500 images/s: both on these cores" in page.text.lower()


def test_more_than_a_ceiling_is_explained() -> None:
    said = "More than a ceiling cannot be"
    assert said in page_of(complete() | {"efficiency": 1.16})[0].text
    assert said not in page_of(complete() | {"efficiency": 1.01})[0].text


def test_why_there_are_no_ceilings_is_told() -> None:
    page, _ = page_of(complete() | {"ceilings": {"loader": None, "model": None, "reason": "The run was <b>cut</b>."}})
    assert "The run was <b>cut</b>." in page.text


@pytest.mark.parametrize("count", [1, 2, MOST_DOTS])
def test_few_steps_are_dots(count: int) -> None:
    picture = throughput(Record(complete()), steps(count, profiled=range(10, 12)))
    drawn = len(re.findall(r"<circle", picture)) + picture.count("▴")
    assert drawn == count
    assert len(re.findall(r'<circle class="dot profiled"', picture)) == (2 if count > 10 else 0)
    assert "<path" not in picture


def test_many_steps_are_a_band_drawn_quickly_and_small() -> None:
    rows = steps(100_000, profiled=range(50_000, 50_100))
    began = time.perf_counter()
    page, text = page_of(complete(), rows)
    assert time.perf_counter() - began < 30  # seconds; about one on a free core
    assert len(text.encode()) < LIMIT / 20
    assert "99,897 steps 100 profiled (not counted) 3 warm-up (not counted)" in page.text
    assert "1,000 epochs" in page.text
    assert text.count('<path class="band"') == text.count('<path class="median"') == 1


def test_the_band_holds_minimum_median_and_maximum() -> None:
    """Rates of 100, 200 and 600 images/s in turn, on a scale that ends a tenth above the highest."""
    rows = [
        {"step": step, "epoch": 0, "images": 100, "profiled": 0, "total": (1.0, 0.5, 1 / 6)[step % 3]}
        for step in range(3000)
    ]
    picture = throughput(Record({}), rows)
    (band,) = re.findall(r'<path class="band" d="M([^"]+)Z"', picture)
    (median,) = re.findall(r'<path class="median" d="M([^"]+)"', picture)
    heights = {round(float(point.split()[1])) for point in band.split("L")}
    assert heights == {round(1000 * (1 - 1 / 1.1)), round(1000 * (1 - 1 / 6.6))}
    assert {round(float(point.split()[1])) for point in median.split("L")} == {round(1000 * (1 - 2 / 6.6))}


def test_a_few_far_steps_do_not_flatten_the_others() -> None:
    rows = steps(200)
    rows[100]["total"] = 1e-5
    picture = throughput(Record(complete()), rows)
    assert picture.count("▴") == 1
    assert "beyond the scale, up to 12,800,000" in picture.replace("\u00a0", " ")


def test_steps_of_unknown_size_are_counted_as_steps() -> None:
    rows = [{key: value for key, value in row.items() if key != "images"} for row in steps(10)]
    assert "How many images a step held is unknown." in throughput(Record(complete()), rows)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (rate(7.857), "7.86"),
        (rate(78.57), "78.6"),
        (rate(1060.4), "1,060"),
        (milliseconds(0.00033), "0.33"),
        (milliseconds(1.3139), "1,314"),
        (duration(0.000331), "331 µs"),
        (duration(0.0437), "43.7 ms"),
        (duration(1.8551), "1.86 s"),
        (duration(750), "12.5 min"),
        (duration(90_000), "25 h"),
        (size(512), "512 B"),
        (size(1_604_608_000), "1.6 GB"),
        (size(5e15), "5,000 TB"),
    ],
)
def test_figures_have_the_unit_that_suits(shown: str, text: str) -> None:
    assert shown.replace("\u00a0", " ") == text


@pytest.mark.parametrize("top", [0.003, 0.9, 1, 7, 99, 1234, 5e6])
def test_ticks_are_round_and_few(top: float) -> None:
    marks = ticks(top)
    assert marks[0] == 0
    assert 3 <= len(marks) <= 6
    assert marks[-1] <= top < marks[-1] + marks[1] * 1.0001
    assert len(f"{marks[1]:.0e}") <= 6
    assert float(f"{marks[1]:.1e}") == pytest.approx(marks[1])


def schemes() -> dict[str, dict[str, str]]:
    """The colours by name, in light and in dark."""
    blocks = [
        dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    ]
    light, dark = blocks
    return {"light": light, "dark": light | dark}


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [value / 255 for value in bytes.fromhex(digits)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_suffices(scheme: str) -> None:
    colours = schemes()[scheme]
    for name in TEXTS:
        assert contrast(colours[name], colours["paper"]) >= TEXT, name
        assert contrast(colours[name], colours["wash"]) >= TEXT, name
    for phase in PHASES:
        assert contrast(colours[phase], colours[f"on-{phase}"]) >= TEXT, phase
        assert contrast(colours[phase], colours["paper"]) >= SHAPE, phase
    assert contrast(colours["ink"], colours["idle"]) >= TEXT
