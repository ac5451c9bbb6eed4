"""Where a step goes: its phases on the host and on the device, callbacks by name; and the throughput of each step."""

import math
import statistics
from collections.abc import Mapping

from strobe.callbacks.columns import PHASES
from strobe.measure.timing import WARMUP_STEPS
from strobe.present.charts.rows import Segment, stacked
from strobe.present.charts.timeline import Point, Timeline
from strobe.present.format import counted, duration, percent
from strobe.present.parts import Chart, Key, Keys, Paragraph, Part, Section, Table, Text, more, named, note
from strobe.records.run import Record, as_number
from strobe.records.tables import Rows
from strobe.report.wording import ceiling_rates

DEVICE = ("transfer", "forward", "backward", "optimizer", "idle")
FEWEST_CALLBACKS, MOST_CALLBACKS = 3, 8
_NOTABLE = 0.001  # share of a step from which on a callback is always listed
_BETWEEN = dict.fromkeys(("between", "other"), "epoch ends and the like")
_SLOWEST, _FASTEST = 1e-9, 1e12  # a second; what lies beyond was not measured
_KINDS = {  # of pauses: columns of steps.csv
    "validation": ("validated", "validation"),
    "checkpoints": ("saved", "checkpoint, longer than a step"),
    "between": ("paused", "other pause, longer than a step"),
}


def step(record: Record) -> Section:
    """The section; it says so where no step was measured."""
    host = _seconds(record, "step_seconds", PHASES)
    total = record.number("step_seconds", "total") or 0.0
    title = "Where a step goes"
    if not host or total <= 0:
        empty = "No step was measured: all were warm-up or profiled, or there were none."
        return Section("step", title, "", [Paragraph(empty, "empty")])
    device = _seconds(record, "device_seconds", DEVICE)
    device_total = record.number("device_seconds", "total") or sum(device.values())
    widest = max(total, device_total if device else 0.0, sum(host.values()), sum(device.values()))
    parts: list[Part] = [stacked("Host" if device else "", segments(host), total, widest)]
    if device and device_total > 0:
        parts.append(stacked("Device", segments(device), device_total, widest))
    parts += [*_callbacks(record, total), *note(*_between(record, total))]
    steps = record.count("steps", "measured")
    about = (
        f"Mean of {steps:,} measured steps; warm-up and profiled steps are left out." if steps else "Mean of a step."
    )
    if device:
        about += " Host: when work is submitted. Device: when it is done, by CUDA events."
    return Section("step", title, about, parts)


def segments(seconds: Mapping[str, float]) -> list[Segment]:
    """Phases as parts of a bar, each with its colour."""
    return [
        Segment(
            "between steps" if phase == "between" else phase.replace("_", " "),
            phase if phase in PHASES else "idle" if phase in {"idle", "between"} else "other",
            value,
        )
        for phase, value in seconds.items()
    ]


def _seconds(record: Record, key: str, phases: tuple[str, ...]) -> dict[str, float]:
    """The known phases in their order, then others by name; negative and missing ones are left out."""
    found = record.mapping(key)
    names = [*phases, *(name for name in found if name not in phases and name != "total")]
    values = {name: as_number(found.get(name)) for name in names}
    return {name: value for name, value in values.items() if value is not None and value >= 0}


def _callbacks(record: Record, total: float) -> list[Part]:
    means = [
        (mean, entry)
        for entry in record.items("callbacks")
        if isinstance(entry, dict) and (mean := as_number(entry.get("mean")))
    ]
    if not means:
        return []
    means.sort(key=lambda pair: -pair[0])
    notable = sum(mean >= _NOTABLE * total for mean, _ in means)
    count = min(MOST_CALLBACKS, max(FEWEST_CALLBACKS, notable))
    rows = []
    for mean, entry in means[:count]:
        longest, calls = as_number(entry.get("longest")), as_number(entry.get("calls"))
        rows.append(
            (
                named(entry.get("name") or "unnamed"),
                Text(str(entry.get("kind") or "")[:40], "small"),
                duration(mean),
                percent(mean / total),
                "" if longest is None else duration(longest),
                "" if calls is None else f"{calls:,.0f}",
            )
        )
    left = sum(mean for mean, _ in means[count:])
    heads = ("Callbacks, loggers and hooks", "", "#Mean a step", "#Share", "#Longest", "#Steps with it")
    return [Table(heads, rows, "hooks"), *more(len(means) - count, "of them", f", together {duration(left)} a step")]


def _between(record: Record, total: float) -> list[str]:
    """What comes on top of the steps, and what only some of them pay."""
    parts = []
    for name in record.mapping("between_seconds"):
        if value := record.number("between_seconds", name):
            share = f"{'+' * (value / total >= 0.005)}{percent(value / total)}"
            parts.append(f"{duration(value)} of {_BETWEEN.get(name, name)} ({share})")
    lines = [f"Between steps, spread over all: {' and '.join(parts)}."] if parts else []
    if first := record.number("first_step_seconds"):
        lines.append(f"The run's first step took {duration(first)}, {first / total:,.1f} times a later one.")
    starts, wait = record.count("epoch_starts", "count"), record.number("epoch_starts", "data_wait")
    if starts and wait is not None:
        lines.append(f"The first step of an epoch waits {duration(wait)} for data (mean of {starts:,}).")
    updates = record.number("updates")
    if updates is not None and 0 < updates < 1:
        lines.append(f"The optimizer stepped in {percent(updates)} of the steps; its time is spread over all of them.")
    return lines


def throughput(record: Record, rows: Rows) -> Section:
    """The section; it says so where ``steps.csv`` holds no step."""
    unit = "images/s" if any(row.get("images") for row in rows) else "steps/s"
    points = points_of(rows, unit)
    if not points:
        failed = record.text("status") == "failed"
        empty = Paragraph("steps.csv holds no steps.", "empty")
        return Section("throughput", "Throughput", "", [] if failed else [empty])
    epochs, pauses = _epochs(rows), _pauses(rows)
    median, low, high = (record.number("images_per_second", end) for end in ("median", "low", "high"))
    limits = ceiling_rates(record).values()
    known = unit == "images/s"
    time = Timeline(
        points,
        unit,
        (median, low, high) if known and median is not None and median > 0 else None,
        min(limits) if known and limits else None,
        epochs,
        {css: [step for step, _ in found] for css, found in pauses.items()},
    )
    about = "Images/s of each step, from steps.csv."
    if time.banded:
        about = f"Images/s of {counted(len(points), 'step')}: the line is the median, the band minimum to maximum."
    if not known:
        about += " How many images a step held is unknown."
    told = [Key("stroke epoch", counted(len(epochs), "epoch"))] if len(epochs) > 1 else []
    for css, name in _KINDS.values():
        if found := pauses[css]:
            seconds = duration(sum(seconds for _, seconds in found))
            told.append(Key(f"mark {css}", f"{name}: {counted(len(found), 'time')}, {seconds} in all"))
    parts: list[Part] = [Chart(time.draw(), keys=time.legend(), zoom=time.zoom()), *([Keys(told)] if told else [])]
    return Section("throughput", "Throughput", about, parts)


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


def _epochs(rows: Rows) -> list[tuple[float, float]]:
    """The first step of each epoch, and its number."""
    found: list[tuple[float, float]] = []
    for number, row in enumerate(rows):
        epoch = row.get("epoch", math.nan)
        if math.isfinite(epoch) and not (found and found[-1][1] == epoch):
            found.append((_step(row, number), epoch))
    return found


def _pauses(rows: Rows) -> dict[str, list[tuple[float, float]]]:
    """Steps after which came a validation, or another pause longer than a usual step; and the seconds of that."""
    totals = [row["total"] for row in rows if 0 < row.get("total", 0.0) < math.inf]
    usual = statistics.median(totals) if totals else math.inf
    found: dict[str, list[tuple[float, float]]] = {css: [] for css, _ in _KINDS.values()}
    for number, row in enumerate(rows):
        for kind, (css, _) in _KINDS.items():
            if (0 if kind == "validation" else usual) < row.get(kind, 0.0) < math.inf:
                found[css].append((_step(row, number), row[kind]))
    return found


def _step(row: dict[str, float], number: int) -> float:
    step = row.get("step", math.nan)
    return step if math.isfinite(step) else float(number)
