"""How certain a rate or a ratio is: bootstrap over repeated runs, widened for few of them.

All is done on logarithms, in which a ratio is a difference. A bootstrap of few values is too narrow: of two runs a side
against two others of the same configuration, its interval leaves out the truth once in three times. So each end
of the interval is the wider one of two that Hesterberg gives ("What Teachers Should Know About the Bootstrap", The
American Statistician 2015, section 5): the expanded percentile, whose tail is that of t instead of normal after
sqrt(n / (n - 1)), and t times the bootstrap's standard error, with Welch's degrees of freedom,
but not more than if both sides had the smaller number of runs: of 2 against 20, Welch's are too many.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
FEWEST = 2  # runs on either side, below which there is no verdict
CERTAINTY = 0.95
# Of a ratio's interval, were its values independent. Runs of a real machine resemble their neighbours, and Welch's
# approximation is a little too narrow for sides of different size: so 1 is still in it 95 times in 100.
CAUTIOUS = 0.97

Verdict = Literal["faster", "slower", "no difference", "too few runs"]
Values = NDArray[np.float64]


class Ratio(TypedDict):
    """A rate in images/s with its 95% interval, or a ratio of two with its 97% one; no ends for too few runs.

    ``median`` is the bootstrap's middle, which is the geometric mean over the runs.
    """

    median: float
    low: float | None
    high: float | None


def unpaired(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """How many times as fast ``ours`` are as ``theirs``: rates of independent runs, all positive, at least one each."""
    sides = [_logarithms(side) for side in (ours, theirs)]
    middle = float(sides[0].mean() - sides[1].mean())
    if min(map(len, sides)) < FEWEST:
        return _ratio(middle, None)
    draws = _resampled(sides[0]) - _resampled(sides[1], seed=1)
    return _ratio(middle, _ends(middle, draws, sides, CAUTIOUS))


def paired(ratios: Sequence[float]) -> Ratio:
    """The ratio of which each round, or turn, has measured one: positive numbers, at least one."""
    return _of_one_side(ratios, CAUTIOUS)


def interval(values: Sequence[float]) -> Ratio:
    """The geometric mean of positive values, such as one cell's rates over its runs, at least one."""
    return _of_one_side(values, CERTAINTY)


def verdict(ratio: Ratio) -> Verdict:
    """What a ratio says: ``no difference`` if its interval holds 1, ``too few runs`` if it has none."""
    low, high = ratio["low"], ratio["high"]
    if low is None or high is None:
        return "too few runs"
    return "slower" if high < 1 else "faster" if low > 1 else "no difference"


def _of_one_side(values: Sequence[float], certainty: float) -> Ratio:
    logarithms = _logarithms(values)
    middle = float(logarithms.mean())
    if len(logarithms) < FEWEST:
        return _ratio(middle, None)
    return _ratio(middle, _ends(middle, _resampled(logarithms), [logarithms], certainty))


def _logarithms(values: Sequence[float]) -> Values:
    array = np.asarray(values, dtype=np.float64)
    if not array.size or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"rates and ratios are positive numbers, at least one: {list(values)}")
    return np.log(array)


def _resampled(values: Values, seed: int = 0) -> Values:
    """Means (RESAMPLES,) of as many values, drawn with replacement; always the same ones."""
    drawn = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    means: Values = values[drawn].mean(axis=1)
    return means


def _ends(middle: float, draws: Values, sides: Sequence[Values], certainty: float) -> tuple[float, float]:
    """The interval's ends, as logarithms.

    Args:
        middle: the estimate.
        draws: what the bootstrap gave for it.
        sides: the values behind it, one side or two, of two values or more.
        certainty: how often the interval is to hold the truth.
    """
    from scipy.special import ndtr, stdtrit

    tail = (1 - certainty) / 2
    fewest = min(map(len, sides))
    expanded = float(ndtr(np.sqrt(fewest / (fewest - 1)) * stdtrit(fewest - 1, tail)))
    low, high = np.quantile(draws, [expanded, 1 - expanded])
    variances = [float(side.var(ddof=1)) / len(side) for side in sides]
    if total := sum(variances):
        freedom = total**2 / sum(one**2 / (len(side) - 1) for one, side in zip(variances, sides, strict=True))
        freedom = min(freedom, len(sides) * (fewest - 1))  # few runs tell their own variance badly, however many others
        plugged = sum(one * (len(side) - 1) / len(side) for one, side in zip(variances, sides, strict=True))
        error = float(draws.std()) * np.sqrt(total / plugged)  # the bootstrap's is too small by about sqrt((n - 1) / n)
        reach = -float(stdtrit(freedom, tail)) * error
        low, high = min(low, middle - reach), max(high, middle + reach)
    return float(low), float(high)


def _ratio(middle: float, ends: tuple[float, float] | None) -> Ratio:
    low, high = (None, None) if ends is None else (float(np.exp(end)) for end in ends)
    return {"median": float(np.exp(middle)), "low": low, "high": high}


def median_interval(values: Sequence[float], *, independent: float | None = None) -> dict[str, float | None]:
    """The median and its 95% interval by order statistics, which assume no distribution; None without values.

    The k-th smallest and the k-th largest of n values enclose the median, with k = (n - 1.96 sqrt(n)) / 2 rounded
    down (Conover 1999, section 3.2); for n below 6 the extremes are all there is, and cover less. Values that resemble
    their neighbours tell as much as fewer ``independent`` ones, and the ranks widen accordingly.
    """
    if not values:
        return {"median": None, "low": None, "high": None}
    ordered, count = sorted(values), len(values)
    k = max(1, math.floor((count - 1.96 * count / math.sqrt(independent or count)) / 2))
    return {"median": statistics.median(ordered), "low": ordered[k - 1], "high": ordered[count - k]}


def independent(values: Sequence[float]) -> float:
    """How many independent values tell as much; with r, the correlation of neighbours, n (1 - r) / (1 + r).

    Bayley and Hammersley 1946, for a first-order autoregression.
    """
    if len(values) < 3:
        return float(len(values))
    mean = statistics.fmean(values)
    spread = sum((value - mean) ** 2 for value in values)
    together = sum((one - mean) * (next_one - mean) for one, next_one in pairwise(values))
    r = min(max(together / spread, 0.0), 0.99) if spread else 0.0
    return max(1.0, len(values) * (1 - r) / (1 + r))
