"""The record of a run: ``summary.json``, from the configuration, the recorded steps and the metrics."""

import csv
import json
import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCHEMA = 1
WARMUP_STEPS = 3  # the first steps of a run pay for allocation and caches, and are not measured
PHASES = ("data_wait", "transfer", "forward", "backward", "optimizer", "callbacks", "other")


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write the record so that it is whole or not there; numbers that are not finite become null."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(json.dumps(_finite(summary), indent=2, allow_nan=False) + "\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_summary(path: Path) -> dict[str, Any]:
    """The record of a run."""
    summary: dict[str, Any] = json.loads(path.read_text())
    return summary


def measure_steps(path: Path, *, block: int = 1) -> dict[str, Any]:
    """``steps``, ``images_per_second`` and ``step_seconds`` of ``summary.json`` from ``steps.csv``.

    Profiled steps and the first ``WARMUP_STEPS`` count for neither rate nor phases. Phases are means, which add up
    to the step; the rate is the median over blocks of so many consecutive steps, with a 95% interval.
    """
    rows = read_rows(path)
    counted = [row for row in rows[WARMUP_STEPS:] if not row["profiled"]]
    profiled = sum(1 for row in rows if row["profiled"])
    blocks = [counted[start : start + block] for start in range(0, len(counted), block)]
    rates = [sum(row["images"] for row in rows) / sum(row["total"] for row in rows) for rows in blocks]
    return {
        "steps": {
            "measured": len(counted),
            "profiled": profiled,
            "skipped": len(rows) - len(counted) - profiled,
        },
        "images_per_second": median_interval(rates),
        "step_seconds": {
            name: statistics.fmean(row[name] for row in counted) if counted else None for name in ("total", *PHASES)
        },
    }


def median_interval(values: Sequence[float]) -> dict[str, float | None]:
    """The median and its 95% interval by order statistics, which assume no distribution; None without values.

    The k-th smallest and the k-th largest of n values enclose the median, with k = (n - 1.96 sqrt(n)) / 2 rounded
    down (Conover 1999, section 3.2); for n below 6 the extremes are all there is, and cover less.
    """
    if not values:
        return {"median": None, "low": None, "high": None}
    ordered, count = sorted(values), len(values)
    k = max(1, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return {"median": statistics.median(ordered), "low": ordered[k - 1], "high": ordered[count - k]}


def read_rows(path: Path) -> list[dict[str, float]]:
    """The rows that are whole; the last one of a killed run may not be."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        whole = [line for line in file if line.endswith("\n")]
    return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(whole)]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
