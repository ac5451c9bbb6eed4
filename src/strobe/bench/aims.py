"""Whether a ratio of speeds reaches an aim. Imports no torch."""

from collections.abc import Mapping
from typing import Any

from strobe.bench.harness.baseline import FEWEST
from strobe.bench.harness.results import Interval


def verdict(ratio: Interval, aim: float, *cells: Mapping[str, Any]) -> str:
    """Of the cells' ``ratio``: reached or missed, if all of its interval is on that side of the aim."""
    median, low, high = (ratio[key] for key in ("median", "low", "high"))
    if median is None or low is None or high is None or min(len(cell["visits"]) for cell in cells) < FEWEST:
        return "too few trials to tell"
    if low >= aim:
        return "reached"
    return "missed" if high < aim else "not decided, the interval holds it"
