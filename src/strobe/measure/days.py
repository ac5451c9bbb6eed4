"""How many times as fast one side is as another where they may be of different days.

A machine changes from day to day by more than its runs of one day show.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from strobe.measure.statistics import RATIO_LEVEL, Estimate, unpaired

FEWEST_DAYS = 3  # a side, if the sides are of different days
NOT_KNOWN = "not known"  # the verdict with fewer

ByDay = Mapping[str, Sequence[float]]  # rates of independent runs, at least one a day


def ratio_by_day(ours: ByDay, theirs: ByDay, *, level: float = RATIO_LEVEL) -> Estimate:
    """How many times as fast one side is as the other.

    Sides that were not run equally often on the same days are compared by their days' means, and have no interval with
    fewer than ``FEWEST_DAYS`` a side.
    """
    if _alike(ours, theirs):
        return unpaired(*([rate for rates in side.values() for rate in rates] for side in (ours, theirs)), level=level)
    means = ([statistics.geometric_mean(rates) for rates in side.values()] for side in (ours, theirs))
    ratio = unpaired(*means, level=level)
    return ratio if ratio.n >= FEWEST_DAYS else replace(ratio, low=None, high=None)


def too_few_days(ours: ByDay, theirs: ByDay) -> bool:
    """Whether two sides cannot be compared as independent runs, because they are of different days."""
    return not _alike(ours, theirs) and min(len(ours), len(theirs)) < FEWEST_DAYS


def _alike(ours: ByDay, theirs: ByDay) -> bool:
    """Whether each day has the same share of both sides."""
    if ours.keys() != theirs.keys():
        return False
    return len({len(theirs[day]) / len(rates) for day, rates in ours.items()}) <= 1
