"""Whether a ratio of speeds reaches an aim. Imports no torch."""

from strobe.measure.statistics import Interval


def verdict(ratio: Interval, aim: float) -> str:
    """Of a ratio of two cells: reached or missed, if all of its interval is on that side of the aim."""
    low, high = ratio["low"], ratio["high"]
    if low is None or high is None:
        return "too few trials to tell"
    if low >= aim:
        return "reached"
    return "missed" if high < aim else "not decided, the interval holds it"
