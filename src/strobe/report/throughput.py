"""Rates over time: single steps as dots, many as a band; below them what lies between steps."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from markupsafe import Markup

from strobe.measure.timing import WARMUP_STEPS
from strobe.present.charts.scale import ticks
from strobe.present.charts.svg import anchor_at, dot, label, line, path, rect, stretched, svg, tag
from strobe.present.format import counted, duration, figure, written
from strobe.present.parts import Chart, Key, Section
from strobe.records.run import Record, rate_of
from strobe.records.tables import Rows
from strobe.report.wording import ceiling_rates, unit_of

STEPS = "steps/s"  # where it is not known how many images a step held
HEIGHT, LANE = 220, 14  # pixels of the plot, and of the lane of pauses below it
MOST_DOTS = 400  # steps; more are drawn as a band
MOST_ZOOMED = 50_000  # steps; more would weigh too much
BUCKETS = 240
PLACES = 400  # in the lane; so many marks at most
MOST_EPOCHS = 40  # epochs that are marked with a line
_NAMED = 5  # epochs that are named
_BELOW = 40  # pixels for the lane and the steps' numbers
SHAPES = {"free": "steps", "profiled": "profiled", "warmup": "warm-up"}
_SLOWEST, _FASTEST = 1e-9, 1e12  # a second; what lies beyond was not measured
_PAUSES = {  # columns of steps.csv
    "validation": ("validated", "validation"),
    "checkpoints": ("saved", "checkpoint, longer than a step"),
    "between": ("paused", "other pause, longer than a step"),
}


@dataclass(frozen=True)
class Point:
    """A step: its number, its rate, and ``free``, ``profiled`` or ``warmup``."""

    step: float
    rate: float
    kind: str
    seconds: float


@dataclass(frozen=True)
class Timeline:
    """What is drawn; ``points`` holds at least one, in the order of their numbers."""

    points: Sequence[Point]
    unit: str
    run: float | None = None  # the headline rate
    ceiling: float | None = None  # the lowest
    epochs: Sequence[tuple[float, float]] = ()  # first step and number
    pauses: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)  # step before it and seconds

    @property
    def span(self) -> tuple[float, float]:
        """The first step's number, and the last one's."""
        return self.points[0].step, self.points[-1].step

    @cached_property
    def top(self) -> float:
        """The end of the scale: above all points, unless a few stand far above the rest."""
        rates = sorted(point.rate for point in self.points)
        usual = rates[min(len(rates) - 1, int(0.98 * len(rates)))]
        return 1.1 * min(rates[-1], 1.5 * usual)

    @property
    def banded(self) -> bool:
        """Whether there are too many steps for dots."""
        return len(self.points) > MOST_DOTS

    def x(self, step: float) -> float:
        """Where a step lies, as a share of the width."""
        first, last = self.span
        return 0.5 if last == first else 0.008 + 0.984 * (step - first) / (last - first)

    def y(self, value: float) -> float:
        """Where a rate lies, in pixels from the top."""
        return HEIGHT * (1 - min(value, self.top) / self.top)

    def draw(self) -> Markup:
        """The plot and the numbers beside it."""
        marks = ticks(self.top)
        grid = [line(0, self.y(mark), 1, self.y(mark), "grid") for mark in marks]
        data = _band(self) if self.banded else _dots(self)
        middle = statistics.median(point.rate for point in self.points)
        said = f"{self.unit} over {counted(len(self.points), 'step')}, median {figure(middle)}"
        drawn = svg(HEIGHT + _BELOW, said, [*grid, *data, *_references(self), *_lane(self), *_numbers(self)])
        axis = [label(1, self.y(mark) + 4, written(mark), "axis", "end") for mark in marks]
        numbers = tag("svg", axis, class_="y", width="46", height=HEIGHT + _BELOW, aria_hidden="true")
        return tag("div", [numbers, drawn], class_="plot")

    def zoom(self) -> dict[str, Any] | None:
        """The same steps for a chart to zoom into, where they are too many for dots and not too many for a page."""
        if not self.banded or len(self.points) > MOST_ZOOMED:
            return None
        steps = [int(point.step) for point in self.points]
        kinds = {kind: [place for place, one in enumerate(self.points) if one.kind == kind] for kind in SHAPES}
        return {
            "unit": self.unit,
            "first": steps[0],
            "steps": None if steps == list(range(steps[0], steps[0] + len(steps))) else steps,
            "rates": [float(f"{point.rate:.4g}") for point in self.points],
            "marked": {SHAPES[kind]: places for kind, places in kinds.items() if places and kind != "free"},
            "run": self.run,
            "ceiling": self.ceiling if self.ceiling and self.ceiling < self.top else None,
            "top": self.top,
        }

    def legend(self) -> list[Key]:
        """What the marks mean."""
        found = []
        for kind, name in SHAPES.items():
            if count := sum(point.kind == kind for point in self.points):
                css = "band" if kind == "free" and self.banded else f"dot {kind}"
                found.append(Key(f"mark {css}", f"{count:,} {name}{'' if kind == 'free' else ' (left out)'}"))
        if beyond := [point.rate for point in self.points if point.rate > self.top]:
            found.append(Key("", f"{counted(len(beyond), 'step')} beyond the scale, up to {figure(max(beyond))}"))
        if self.run and self.run < self.top:
            found.append(Key("stroke run", f"all of training {figure(self.run)}"))
        if self.ceiling and self.ceiling < self.top:
            found.append(Key("stroke ceiling", f"lowest ceiling {figure(self.ceiling)}"))
        return found


def throughput(record: Record, rows: Rows) -> Section:
    """The section; empty where ``steps.csv`` holds no step."""
    unit = unit_of(record) if any(row.get("images") for row in rows) else STEPS
    points = points_of(rows, unit)
    if not points:
        return Section("throughput", "Throughput", "", [])
    run = ceiling = None
    if unit != STEPS:
        run = rate_of(record)
        ceiling = min(ceiling_rates(record).values(), default=None)
    epochs: dict[float, float] = {}
    for number, row in enumerate(rows):
        if math.isfinite(epoch := row.get("epoch", math.nan)):
            epochs.setdefault(epoch, row.get("step", float(number)))
    time = Timeline(points, unit, run, ceiling, [(step, epoch) for epoch, step in epochs.items()], _pauses(rows))
    about = "of each step, from steps.csv."
    if time.banded:
        about = f"of {counted(len(points), 'step')}: the line is the median, the band minimum to maximum."
    about = f"{unit.capitalize()} {about}"
    if unit == STEPS:
        about += " How many images a step held is unknown."
    told = [Key("stroke epoch", counted(len(epochs), "epoch"))] if len(epochs) > 1 else []
    for kind, (css, name) in _PAUSES.items():
        if found := time.pauses[kind]:
            seconds = duration(sum(seconds for _, seconds in found))
            told.append(Key(f"mark {css}", f"{name}: {counted(len(found), 'time')}, {seconds} in all"))
    chart = Chart(time.draw(), keys=[*time.legend(), *told], zoom=time.zoom())
    return Section("throughput", "Throughput", about, [chart])


def points_of(rows: Rows, unit: str) -> list[Point]:
    """Steps with a finite rate, in the order of their numbers."""
    found = []
    for number, row in enumerate(rows):
        total, step = row.get("device_total") or row.get("total", 0.0), row.get("step", float(number))
        images = row.get("images", 0.0) if unit != STEPS else 1.0
        if 0 < total < math.inf and math.isfinite(step) and _SLOWEST < images / total < _FASTEST:
            kind = "profiled" if row.get("profiled") else "warmup" if number < WARMUP_STEPS else "free"
            found.append(Point(step, images / total, kind, total))
    return sorted(found, key=lambda point: point.step)


def _pauses(rows: Rows) -> dict[str, list[tuple[float, float]]]:
    """Steps after which came a validation, or another pause longer than a usual step; and the seconds of that."""
    totals = [row["total"] for row in rows if 0 < row.get("total", 0.0) < math.inf]
    least = dict.fromkeys(_PAUSES, statistics.median(totals) if totals else math.inf) | {"validation": 0.0}
    return {
        kind: [
            (row.get("step", float(number)), row[kind])
            for number, row in enumerate(rows)
            if shortest < row.get(kind, 0.0) < math.inf
        ]
        for kind, shortest in least.items()
    }


def _dots(time: Timeline) -> Iterable[Markup]:
    for point in time.points:
        if point.rate > time.top:
            yield label(time.x(point.step), 9, "▴", f"beyond {point.kind}", "middle")
            continue
        told = f"{figure(point.rate)} {time.unit}, {duration(point.seconds)}"
        title = f"step {point.step:,.0f}, {SHAPES[point.kind]}: {told}"
        yield dot(time.x(point.step), time.y(point.rate), 3.2, f"dot {point.kind}", title)


def _band(time: Timeline) -> Iterable[Markup]:
    """Minimum, median and maximum of the free steps by bucket; profiled steps and warm-up as dots by bucket."""

    def places(choose: Callable[[list[float]], float]) -> list[tuple[float, float]]:
        return [(1000 * time.x(step), 1000 * time.y(choose(rates)) / HEIGHT) for step, rates in free]

    if free := _buckets(time, "free"):
        band = path([*places(max), *reversed(places(min))], "band", closed=True)
        yield stretched(0, HEIGHT, [band, path(places(statistics.median), "median")])
    for kind in ("profiled", "warmup"):
        for step, rates in _buckets(time, kind):
            value = statistics.median(rates)
            title = f"{counted(len(rates), 'step')} about {step:,.0f}, {SHAPES[kind]}: {figure(value)}"
            yield dot(time.x(step), time.y(value), 2.4, f"dot {kind}", title)


def _buckets(time: Timeline, kind: str) -> list[tuple[float, list[float]]]:
    """The middle step and the rates of each bucket of the whole run's steps that holds any of that kind."""
    first, last = time.span
    width = (last - first + 1) / BUCKETS
    points = (point for point in time.points if point.kind == kind)  # in order
    buckets = [list(held) for _, held in groupby(points, lambda point: int((point.step - first) / width))]
    return [(statistics.fmean(point.step for point in held), [point.rate for point in held]) for held in buckets]


def _references(time: Timeline) -> Iterable[Markup]:
    """The run's rate and the lowest ceiling, which both count all time."""
    for value, css in ((time.run, "run"), (time.ceiling, "ceiling")):
        if value and value < time.top:
            yield line(0, time.y(value), 1, time.y(value), css)


def _lane(time: Timeline) -> Iterable[Markup]:
    """Epochs as lines through the plot, validation and other pauses as marks below it."""
    starts, top = time.epochs, HEIGHT + 2
    if 1 < len(starts) <= MOST_EPOCHS:
        for step, _ in starts[1:]:
            yield line(time.x(step - 0.5), 0, time.x(step - 0.5), top + LANE, "epoch")
    if len(starts) > 1:
        for number in range(0, len(starts), math.ceil(len(starts) / _NAMED)):
            step, epoch = starts[number]
            name = f"{epoch:,.0f}" if number else f"epoch {epoch:,.0f}"
            yield label(time.x(step - 0.5 * bool(number)) + 0.004, 11, name, "axis quiet")
    for kind, found in time.pauses.items():
        for place in sorted({round(min(1.0, time.x(step + 0.5)) * PLACES) for step, _ in found}):
            yield rect(place / PLACES - 0.0015, top + 7 * (kind != "validation"), 0.003, 6, _PAUSES[kind][0])


def _numbers(time: Timeline) -> Iterable[Markup]:
    """The steps' numbers below the plot: round ones, far enough apart for a phone."""
    base, (first, last) = HEIGHT + _BELOW - 4, time.span
    if last == first:
        yield label(0.5, base, f"step {first:,.0f}", "axis", "middle")
        return
    for mark in [first + mark for mark in ticks(last - first, 4)] if first else ticks(last, 4):
        if mark == int(mark):
            place = time.x(mark)
            yield label(place, base, f"{mark:,.0f}" if mark else "step 0", "axis", anchor_at(place))
