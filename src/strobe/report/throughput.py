"""Throughput against the step, and what disturbed it: profiled steps, epochs, validation, other pauses."""

import math
import statistics

from strobe.measure.timing import WARMUP_STEPS
from strobe.present.charts.timeline import Point, Timeline
from strobe.present.format import counted, duration
from strobe.present.parts import Chart, Key, Paragraph, Part, Section, keys
from strobe.records.run import Record
from strobe.records.tables import Rows

_SLOWEST, _FASTEST = 1e-9, 1e12  # a second; what lies beyond was not measured
_KINDS = {  # of pauses: columns of steps.csv
    "validation": ("validated", "validation"),
    "checkpoints": ("saved", "checkpoint, longer than a step"),
    "between": ("paused", "other pause, longer than a step"),
}


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
    limits = [value for key in ("loader", "model", "transfer", "joint") if (value := record.number("ceilings", key))]
    known = unit == "images/s"
    time = Timeline(
        points,
        unit,
        (median, low, high) if known and median is not None and median > 0 else None,
        min(limits) if known and limits and min(limits) > 0 else None,
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
    parts: list[Part] = [Chart(time.draw(), keys=time.legend(), zoom=time.zoom()), *keys(told)]
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
    found, last = [], None
    for number, row in enumerate(rows):
        epoch = row.get("epoch")
        if epoch is not None and math.isfinite(epoch) and epoch != last:
            found.append((_step(row, number), epoch))
            last = epoch
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
