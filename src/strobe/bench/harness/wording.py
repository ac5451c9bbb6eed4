"""A suite's figures in words. Imports no torch."""

import math
from collections.abc import Mapping
from typing import Any

from strobe.bench.harness.declare import Table


def in_unit(table: Table, cell: Mapping[str, Any]) -> tuple[float, float, float]:
    """Median, low and high of a measured cell in its table's unit."""
    if table.unit == "ms":
        interval = cell["seconds"]
        return 1e3 * interval["median"], 1e3 * interval["low"], 1e3 * interval["high"]
    interval = cell["images_per_second"]
    if table.unit == "images/s":
        return interval["median"], interval["low"], interval["high"]
    return 1e6 / interval["median"], 1e6 / interval["high"], 1e6 / interval["low"]


def figure(value: float) -> str:
    """Three digits at least: 0.00123, 4.56, 1,234."""
    digits = 2 - math.floor(math.log10(abs(value) * 1.0005)) if value else 0
    return f"{value:,.{min(9, max(0, digits))}f}"


def ratio(interval: Mapping[str, Any] | None) -> str:
    """A ratio with its interval, if there is one; of a single trial, without."""
    if interval is None or interval["median"] is None:
        return ""
    if interval["low"] is None or interval["high"] is None:
        return figure(interval["median"])
    median, low, high = (figure(interval[key]) for key in ("median", "low", "high"))
    return median if low == median == high else f"{median} ({low} to {high})"
