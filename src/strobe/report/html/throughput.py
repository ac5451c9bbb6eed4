"""Throughput against the step: single steps as dots, many as a band; what disturbed them is told apart."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from strobe.measure.timing import WARMUP_STEPS
from strobe.records.run import Record
from strobe.records.tables import Rows
from strobe.report.html.drawing import anchor_at, dot, label, line, path, rect, stretched, svg, ticks
from strobe.report.html.lane import between_steps, lane, pauses
from strobe.report.html.pieces import section
from strobe.report.html.text import counted, duration, rate

Scale = Callable[[float], float]
HEIGHT = 220  # pixels
MOST_DOTS = 400  # steps; more are drawn as a band
BUCKETS = 240
_SLOWEST, _FASTEST = 1e-9, 1e12  # a second; what lies beyond was not measured
_BELOW = 40  # pixels for the lane of pauses and the steps' numbers
_SHAPES = {"free": "steps", "profiled": "profiled", "warmup": "warm-up"}


@dataclass(frozen=True)
class Point:
    """A step: its number, its rate, and ``free``, ``profiled`` or ``warmup``."""

    step: float
    rate: float
    kind: str
    seconds: float


def throughput(record: Record, rows: Rows) -> str:
    """The section; it says so where ``steps.csv`` holds no step."""
    note = "Images/s of each step, from steps.csv."
    unit = "images/s" if any(row.get("images") for row in rows) else "steps/s"
    points = points_of(rows, unit)
    if not points:
        if record.text("status") == "failed":
            return ""
        return section("throughput", "Throughput", "", '<p class="empty">steps.csv holds no steps.</p>')
    between = between_steps(rows)
    first, last = points[0].step, max(point.step for point in points)
    if len(points) > MOST_DOTS:
        note = f"Images/s of {counted(len(points), 'step')}: the line is the median, the band minimum to maximum."
    if unit == "steps/s":
        note += " How many images a step held is unknown."
    top = _top(points)

    def x(step: float) -> float:
        return 0.5 if last == first else 0.008 + 0.984 * (step - first) / (last - first)

    def y(value: float) -> float:
        return HEIGHT * (1 - min(value, top) / top)

    marks = ticks(top)
    grid = [line(0, y(mark), 1, y(mark), "grid") for mark in marks]
    data = _band(points, x, top) if len(points) > MOST_DOTS else _dots(points, x, y, top, unit)
    lines, keys = _references(record, y, top) if unit == "images/s" else ([], [])
    drawn = [*grid, *data, *lines, *lane(between, x, HEIGHT + 2), *_numbers(first, last, x)]
    median = statistics.median(point.rate for point in points)
    said = f"{unit} over {counted(len(points), 'step')}, median {rate(median)}"
    axis = "".join(label(1, y(mark) + 4, f"{mark:,.10g}", "axis", "end") for mark in marks)
    numbers = f'<svg class="y" width="46" height="{HEIGHT + _BELOW}" aria-hidden="true">{axis}</svg>'
    plot = f'<div class="plot">{numbers}{svg(HEIGHT + _BELOW, said, drawn)}</div>'
    body = f"<figure>{plot}{_legend(points, keys, top)}</figure>{pauses(between)}"
    return section("throughput", "Throughput", note, body)


def points_of(rows: Rows, unit: str) -> list[Point]:
    """Steps with a finite rate, in the order of their numbers."""
    found = []
    for number, row in enumerate(rows):
        total, step = row.get("device_total") or row.get("total", 0.0), row.get("step", float(number))
        images = row.get("images", 0.0) if unit == "images/s" else 1.0
        if not (0 < total < math.inf and math.isfinite(step) and _SLOWEST < images / total < _FASTEST):
            continue
        kind = "profiled" if row.get("profiled") else "warmup" if number < WARMUP_STEPS else "free"
        found.append(Point(step, images / total, kind, total))
    return sorted(found, key=lambda point: point.step)


def _top(points: Sequence[Point]) -> float:
    """The scale's end: all points, unless a few stand far above the rest."""
    rates = sorted(point.rate for point in points)
    usual = rates[min(len(rates) - 1, int(0.98 * len(rates)))]
    return 1.1 * min(rates[-1], 1.5 * usual)


def _dots(points: Iterable[Point], x: Scale, y: Scale, top: float, unit: str) -> list[str]:
    drawn = []
    for point in points:
        title = f"step {point.step:,.0f}, {_SHAPES[point.kind]}: {rate(point.rate)} {unit}, {duration(point.seconds)}"
        if point.rate > top:
            drawn.append(label(x(point.step), 9, "▴", f"beyond {point.kind}", "middle"))
        else:
            drawn.append(dot(x(point.step), y(point.rate), 3.2, f"dot {point.kind}", title))
    return drawn


def _band(points: Sequence[Point], x: Scale, top: float) -> list[str]:
    """Minimum, median and maximum of the free steps by bucket; profiled steps and warm-up as dots by bucket."""

    def height(value: float) -> float:
        return 1000 * (1 - min(value, top) / top)

    upper, lower, middle = [], [], []
    for step, rates in _buckets([point for point in points if point.kind == "free"], points):
        at = 1000 * x(step)
        upper.append((at, height(max(rates))))
        lower.append((at, height(min(rates))))
        middle.append((at, height(statistics.median(rates))))
    drawn = []
    if middle:
        band = [path([*upper, *reversed(lower)], "band", closed=True), path(middle, "median")]
        drawn.append(stretched(0, HEIGHT, band))
    for kind in ("profiled", "warmup"):
        for step, rates in _buckets([point for point in points if point.kind == kind], points):
            value = statistics.median(rates)
            title = f"{counted(len(rates), 'step')} about {step:,.0f}, {_SHAPES[kind]}: {rate(value)}"
            drawn.append(dot(x(step), height(value) * HEIGHT / 1000, 2.4, f"dot {kind}", title))
    return drawn


def _buckets(chosen: Sequence[Point], points: Sequence[Point]) -> list[tuple[float, list[float]]]:
    """The middle step and the rates of each bucket of the whole run's steps that holds any."""
    first, last = points[0].step, points[-1].step
    width = (last - first + 1) / BUCKETS
    found: dict[int, list[Point]] = {}
    for point in chosen:
        found.setdefault(int((point.step - first) / width), []).append(point)
    return [
        (statistics.fmean(point.step for point in held), [point.rate for point in held])
        for _, held in sorted(found.items())
    ]


def _references(record: Record, y: Scale, top: float) -> tuple[list[str], list[str]]:
    """The median with its interval, and the lowest ceiling where it is in sight; with their words for the legend."""
    lines, keys = [], []
    median = record.number("images_per_second", "median")
    low, high = record.number("images_per_second", "low"), record.number("images_per_second", "high")
    if median is not None and 0 < median < top:
        if low is not None and high is not None and low <= high:
            lines.append(rect(0, y(high), 1, max(1.0, y(max(0.0, low)) - y(high)), "spread"))
        lines.append(line(0, y(median), 1, y(median), "run"))
        keys.append(f'<li><i class="stroke run"></i><span>median {rate(median)}</span></li>')
    values = [value for key in ("loader", "model", "transfer", "joint") if (value := record.number("ceilings", key))]
    if values and 0 < min(values) < top:
        lines.append(line(0, y(min(values)), 1, y(min(values)), "ceiling"))
        keys.append(f'<li><i class="stroke ceiling"></i><span>lowest ceiling {rate(min(values))}</span></li>')
    return lines, keys


def _numbers(first: float, last: float, x: Scale) -> list[str]:
    """The steps' numbers below the plot: round ones, far enough apart for a phone."""
    base = HEIGHT + _BELOW - 4
    if last == first:
        return [label(0.5, base, f"step {first:,.0f}", "axis", "middle")]
    inside = [first + mark for mark in ticks(last - first, 4)] if first else ticks(last, 4)
    places = [(mark, x(mark)) for mark in inside if mark == int(mark)]
    return [
        label(place, base, f"{mark:,.0f}" if mark else "step 0", "axis", anchor_at(place)) for mark, place in places
    ]


def _legend(points: Sequence[Point], keys: Sequence[str], top: float) -> str:
    items = []
    for kind, name in _SHAPES.items():
        count = sum(1 for point in points if point.kind == kind)
        if count:
            css = "band" if kind == "free" and len(points) > MOST_DOTS else f"dot {kind}"
            words = name if kind == "free" else f"{name} (not counted)"
            items.append(f'<li><i class="mark {css}"></i><span>{count:,} {words}</span></li>')
    beyond = [point.rate for point in points if point.rate > top]
    if beyond:
        most = rate(max(beyond))
        items.append(f"<li><span>{counted(len(beyond), 'step')} beyond the scale, up to {most}</span></li>")
    return f'<ul class="keys">{"".join(items)}{"".join(keys)}</ul>'
