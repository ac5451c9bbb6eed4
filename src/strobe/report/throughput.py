"""Rates over time: single steps as dots, many as a band; below them what lies between steps."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup

from strobe.diagnose.rank import ceiling_rates
from strobe.measure.timing import WARMUP_STEPS
from strobe.present.charts.scale import ticks
from strobe.present.charts.svg import anchor_at, dot, label, line, path, plot, rect, stretched
from strobe.present.format import counted, duration, figure, written
from strobe.present.parts import Chart, Key, Section
from strobe.records.columns import Floats, Ints
from strobe.records.run import Record, rate_of
from strobe.records.step_table import StepTable
from strobe.report.wording import unit_of

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
class Timeline:
    """N steps to draw, at least one, in the order of their numbers."""

    unit: str
    steps: Floats  # (N,) their numbers
    rates: Floats  # (N,)
    seconds: Floats  # (N,)
    kinds: Ints  # (N,) places in ``SHAPES``
    run: float | None = None  # the headline rate
    ceiling: float | None = None  # the lowest
    epochs: Sequence[tuple[float, float]] = ()  # first step and number
    pauses: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)  # step before it and seconds

    @property
    def span(self) -> tuple[float, float]:
        """The first step's number, and the last one's."""
        return float(self.steps[0]), float(self.steps[-1])

    @cached_property
    def top(self) -> float:
        """The end of the scale: above all points, unless a few stand far above the rest."""
        usual = np.quantile(self.rates, 0.98, method="higher")
        return 1.1 * float(min(self.rates.max(), 1.5 * usual))

    @property
    def banded(self) -> bool:
        """Whether there are too many steps for dots."""
        return len(self.steps) > MOST_DOTS

    def x(self, step: float) -> float:
        """Where a step lies, as a share of the width."""
        first, last = self.span
        return 0.5 if last == first else 0.008 + 0.984 * (step - first) / (last - first)

    def y(self, value: float) -> float:
        """Where a rate lies, in pixels from the top."""
        return HEIGHT * (1 - min(value, self.top) / self.top)

    def draw(self) -> Markup:
        """The plot and the numbers beside it."""
        data = _band(self) if self.banded else _dots(self)
        middle = figure(float(np.median(self.rates)))
        said = f"{self.unit} over {counted(len(self.steps), 'step')}, median {middle}"
        marks = {self.y(mark): written(mark) for mark in ticks(self.top)}
        return plot(HEIGHT + _BELOW, said, marks, [*data, *_references(self), *_lane(self), *_numbers(self)])

    def zoom(self) -> dict[str, Any] | None:
        """The same steps for a chart to zoom into, where they are too many for dots and not too many for a page."""
        if not self.banded or len(self.steps) > MOST_ZOOMED:
            return None
        steps = self.steps.astype(int).tolist()
        marked = {
            name: np.flatnonzero(self.kinds == kind).tolist() for kind, name in enumerate(SHAPES.values()) if kind
        }
        return {
            "unit": self.unit,
            "first": steps[0],
            "steps": None if steps == list(range(steps[0], steps[0] + len(steps))) else steps,
            "rates": [float(f"{rate:.4g}") for rate in self.rates.tolist()],
            "marked": {name: places for name, places in marked.items() if places},
            "run": self.run,
            "ceiling": self.ceiling if self.ceiling and self.ceiling < self.top else None,
            "top": self.top,
        }

    def legend(self) -> list[Key]:
        """What the marks mean."""
        keys = []
        for number, (kind, name) in enumerate(SHAPES.items()):
            if count := int((self.kinds == number).sum()):
                css = "band" if kind == "free" and self.banded else f"dot {kind}"
                keys.append(Key(f"mark {css}", f"{count:,} {name}{'' if kind == 'free' else ' (left out)'}"))
        if beyond := int((self.rates > self.top).sum()):
            highest = figure(float(self.rates.max()))
            keys.append(Key("", f"{counted(beyond, 'step')} beyond the scale, up to {highest}"))
        if self.run and self.run < self.top:
            keys.append(Key("stroke run", f"all of training {figure(self.run)}"))
        if self.ceiling and self.ceiling < self.top:
            keys.append(Key("stroke ceiling", f"lowest ceiling {figure(self.ceiling)}"))
        return keys


def throughput(record: Record, rows: StepTable) -> Section:
    """The section; empty where ``steps.csv`` holds no step."""
    known, epochs = bool(rows.get("images").any()), dict[float, float]()
    numbers = rows.get("step", math.nan)
    numbers = np.where(np.isnan(numbers), np.arange(len(rows)), numbers)
    for epoch, number in zip(rows.get("epoch", math.nan).tolist(), numbers.tolist(), strict=True):
        if math.isfinite(epoch):
            epochs.setdefault(epoch, number)
    time = timeline(
        rows,
        unit_of(record) if known else STEPS,
        run=rate_of(record) if known else None,
        ceiling=min(ceiling_rates(record).values(), default=None) if known else None,
        epochs=[(step, epoch) for epoch, step in epochs.items()],
        pauses=_pauses(rows, numbers),
    )
    if time is None:
        return Section("throughput", "Throughput", "", [])
    about = "of each step, from steps.csv."
    if time.banded:
        about = f"of {counted(len(time.steps), 'step')}: the line is the median, the band minimum to maximum."
    about = f"{time.unit.capitalize()} {about}" + " How many images a step held is unknown." * (not known)
    told = [Key("stroke epoch", counted(len(epochs), "epoch"))] if len(epochs) > 1 else []
    for kind, (css, name) in _PAUSES.items():
        if found := time.pauses[kind]:
            seconds = duration(sum(seconds for _, seconds in found))
            told.append(Key(f"mark {css}", f"{name}: {counted(len(found), 'time')}, {seconds} in all"))
    chart = Chart(time.draw(), keys=[*time.legend(), *told], zoom=time.zoom())
    return Section("throughput", "Throughput", about, [chart])


def timeline(rows: StepTable, unit: str, **more: Any) -> Timeline | None:
    """The steps with a finite rate, in the order of their numbers; None without any."""
    numbers, places, device = rows.get("step", math.nan), np.arange(len(rows)), rows.get("device_total")
    numbers = np.where(np.isnan(numbers), places, numbers)
    seconds = np.where(device > 0, device, rows.get("total"))
    images = np.ones(len(rows)) if unit == STEPS else rows.get("images")
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = images / seconds
    known = (seconds > 0) & np.isfinite(seconds) & np.isfinite(numbers) & (rates > _SLOWEST) & (rates < _FASTEST)
    kinds = np.where(rows.get("profiled") != 0, 1, np.where(places < WARMUP_STEPS, 2, 0))
    order = np.flatnonzero(known)[np.argsort(numbers[known], kind="stable")]
    if not len(order):
        return None
    return Timeline(unit, numbers[order], rates[order], seconds[order], kinds[order], **more)


def _pauses(rows: StepTable, numbers: Floats) -> dict[str, list[tuple[float, float]]]:
    """Steps after which came a validation, or another pause longer than a usual step; and the seconds of that."""
    totals, pauses = rows.get("total"), {}
    totals = totals[(totals > 0) & np.isfinite(totals)]
    usual = float(np.median(totals)) if len(totals) else math.inf
    for kind in _PAUSES:
        seconds = rows.get(kind)
        places = np.flatnonzero((seconds > (0.0 if kind == "validation" else usual)) & np.isfinite(seconds))
        pauses[kind] = list(zip(numbers[places].tolist(), seconds[places].tolist(), strict=True))
    return pauses


def _dots(time: Timeline) -> Iterable[Markup]:
    for step, rate, seconds, number in zip(time.steps, time.rates, time.seconds, time.kinds, strict=True):
        kind, name = [*SHAPES.items()][number]
        if rate > time.top:
            yield label(time.x(step), 9, "▴", f"beyond {kind}", "middle")
            continue
        title = f"step {step:,.0f}, {name}: {figure(rate)} {time.unit}, {duration(seconds)}"
        yield dot(time.x(step), time.y(rate), 3.2, f"dot {kind}", title)


def _band(time: Timeline) -> Iterable[Markup]:
    """Minimum, median and maximum of the free steps by bucket; profiled steps and warm-up as dots by bucket."""

    def places(choose: Callable[[Floats], float]) -> list[tuple[float, float]]:
        return [(1000 * time.x(step), 1000 * time.y(choose(rates)) / HEIGHT) for step, rates in free]

    if free := _buckets(time, 0):
        band = path([*places(np.max), *reversed(places(np.min))], "band", closed=True)
        yield stretched(0, HEIGHT, [band, path(places(np.median), "median")])
    for number, (kind, name) in enumerate(SHAPES.items()):
        for step, rates in _buckets(time, number) if number else ():
            value = float(np.median(rates))
            title = f"{counted(len(rates), 'step')} about {step:,.0f}, {name}: {figure(value)}"
            yield dot(time.x(step), time.y(value), 2.4, f"dot {kind}", title)


def _buckets(time: Timeline, kind: int) -> list[tuple[float, Floats]]:
    """The middle step and the rates of each bucket of the whole run's steps that holds any of that kind."""
    (first, last), chosen = time.span, time.kinds == kind
    steps, rates = time.steps[chosen], time.rates[chosen]
    bucket = ((steps - first) / ((last - first + 1) / BUCKETS)).astype(int)
    cuts = np.flatnonzero(np.diff(bucket)) + 1
    held = zip(np.split(steps, cuts), np.split(rates, cuts), strict=True) if len(steps) else ()
    return [(float(within.mean()), each) for within, each in held]


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
