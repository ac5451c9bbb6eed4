"""How certain a figure is: estimates with intervals, ratios of speeds, verdicts, and when to stop measuring.

Rates and ratios of independent runs are taken as logarithms, in which a ratio is a difference, and get an interval by
Student's t. A sweep that visits all its cells once a repeat is a randomised block design: what slows a whole repeat
affects no ratio. Values of one run, in order of time, resemble their neighbours: they get their median, and an
interval by order statistics over as many values as would be independent.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from strobe.measure import WIDEST
from strobe.measure.distributions import beta_quantile, students_quantile, students_tails

FEWEST = 2  # values on either side; with fewer there is neither an interval nor a verdict
LEVEL = 0.95
# Level of a ratio's interval. Runs of a real machine resemble their neighbours, however they are interleaved: at 97%
# a configuration compared with itself shows no difference at least 95 times in 100.
RATIO_LEVEL = 0.97
ENOUGH = 6  # values; from here on the smallest and the largest enclose the median 95 times in 100
ALIKE = 4.0  # the weight, in values, of the whole sweep's noise in the noise of one cell
POWER = 0.8  # probability that the number of values from ``needed`` settles it

# A paired trial is checked more than once.
FALSE_ALARM = 0.04  # of trials of equals, or of whole searches, may find one side faster; the same for the other side
CORRELATED = 0.6  # the largest correlation of neighbouring pairs of turns that the bounds allow for
LONGER = (1, 2, 4)  # multiples of the planned quads after which a trial is checked
PROMISING = 1.03  # estimated speed-up: less is not worth more time
MOST_REACH = 50.0  # as a logarithm: a wider interval says no more
SIMULATED = 40_000  # trials of equals, from which the bounds are found

Verdict = Literal["faster", "slower", "no difference", "too few runs"]
Values = NDArray[np.float64]
Interval = dict[str, Any]  # an estimate in records: median, low and high, each a number or None


@dataclass(frozen=True)
class Estimate:
    """A figure and the interval that holds the truth in a share ``level`` of all cases; no ends for too few values."""

    middle: float  # the geometric mean of rates and ratios; the median of what was measured in one run
    low: float | None
    high: float | None
    level: float
    n: int  # values; with two sides, of the side with fewer
    freedom: float | None = field(default=None, compare=False)  # if the interval is by Student's t

    @property
    def verdict(self) -> Verdict:
        """A ratio's verdict: ``no difference`` if its interval includes 1, ``too few runs`` if it has none."""
        if self.low is None or self.high is None:
            return "too few runs"
        return "slower" if self.high < 1 else "faster" if self.low > 1 else "no difference"

    @property
    def wide(self) -> bool:
        """Whether its ends lie further apart than ``WIDEST``: its runs differ too much."""
        return self.low is not None and self.high is not None and self.high > WIDEST * self.low

    @property
    def within(self) -> float | None:
        """The distance from the middle to the interval's farther end, as a share of the middle; None without ends."""
        if self.low is None or self.high is None:
            return None
        return max(self.high - self.middle, self.middle - self.low) / self.middle

    def times(self, factor: float) -> "Estimate":
        """The estimate of a multiple."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return replace(self, middle=self.middle * factor, low=low, high=high)

    def at(self, level: float) -> "Estimate":
        """The same with an interval of another level; unchanged if it is not by Student's t."""
        if self.low is None or self.high is None or self.freedom is None:
            return self
        return _estimate(math.log(self.middle), self._error, self.freedom, level, self.n)

    @property
    def _error(self) -> float:
        """The standard error of the logarithm."""
        assert self.low is not None
        assert self.high is not None
        assert self.freedom is not None
        return math.log(self.high / self.low) / 2 / students_quantile((1 + self.level) / 2, self.freedom)

    @property
    def chance(self) -> float:
        """The share of equals that would differ by as much or more; 1 if unknown."""
        if self.low is None or self.high is None or self.freedom is None:
            return 1.0
        away, error = abs(math.log(self.middle)), self._error
        return students_tails(away / error, self.freedom) if error else float(away == 0)

    def as_record(self) -> Interval:
        """The entry in ``summary.json``, ``results.json`` and ``comparison.json``."""
        return {"median": self.middle, "low": self.low, "high": self.high}


def recorded(estimate: Estimate | None) -> Interval:
    """The entry in a record, also if nothing was measured."""
    return {"median": None, "low": None, "high": None} if estimate is None else estimate.as_record()


def interval(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """The geometric mean of independent positive values, such as one cell's rates over its runs, at least one."""
    logs = _logarithms(values)
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs)) if len(logs) >= FEWEST else None
    return _estimate(float(logs.mean()), error, len(logs) - 1, level, len(logs))


def paired(ratios: Sequence[float]) -> Estimate:
    """The ratio, from one measured in each round or pair of turns: positive numbers, at least one."""
    return interval(ratios, RATIO_LEVEL)


def unpaired(ours: Sequence[float], theirs: Sequence[float], *, level: float = RATIO_LEVEL) -> Estimate:
    """How many times as fast ``ours`` are as ``theirs``: rates of independent runs, all positive, at least one each.

    Welch's interval for a difference of logarithms, with at most the degrees of freedom of two sides with the
    smaller number of runs: of 2 runs against 20 Welch has too many, and finds a difference between equals in 1 of 8
    comparisons where it should in 1 of 20.
    """
    sides = [_logarithms(side) for side in (ours, theirs)]
    middle, fewest = float(sides[0].mean() - sides[1].mean()), min(map(len, sides))
    if fewest < FEWEST:
        return _estimate(middle, None, 0, level, fewest)
    variances = [float(side.var(ddof=1)) / len(side) for side in sides]
    total = sum(variances)
    welch = total**2 / max(sum(v**2 / (len(side) - 1) for v, side in zip(variances, sides, strict=True)), 1e-300)
    freedom = min(max(welch, fewest - 1), 2 * (fewest - 1))
    return _estimate(middle, math.sqrt(total), freedom, level, fewest)


class Blocks:
    """Rates of several cells in blocks, each with one rate of every cell, or of some: a randomised block design.

    The logarithm of a rate is taken as the cell's, plus the block's, plus noise, and all are fitted by least squares
    (Box, Hunter and Hunter, "Statistics for Experimenters", 2005, chapter 4). So two cells are compared within blocks:
    with two cells in all, by Student's t of the pairs. Two or three blocks say little of a cell's own noise: its
    variance is the mean of what its own values show and of all cells' variance, which weighs ``ALIKE`` values (a
    conjugate prior, as in Smyth, "Linear models and empirical Bayes methods", 2004). So cells may differ in noise.

    Args:
        rates: by cell, and then by block; positive.
    """

    def __init__(self, rates: Mapping[Any, Mapping[Any, float]]) -> None:
        self.rates, self._places = rates, {cell: place for place, cell in enumerate(rates)}
        values = [(cell, block, rate) for cell, found in rates.items() for block, rate in found.items()]
        blocks = {block: len(rates) + place for place, block in enumerate(dict.fromkeys(b for _, b, _ in values))}
        cells = np.array([self._places[cell] for cell, _, _ in values])
        logs = _logarithms([rate for *_, rate in values])
        design = np.zeros((len(values), len(rates) + len(blocks)))
        design[np.arange(len(values)), cells] = 1
        design[np.arange(len(values)), [blocks[block] for _, block, _ in values]] = 1
        self._weights: Values = np.asarray(np.linalg.pinv(design), dtype=np.float64)
        self._fitted: Values = self._weights @ logs
        away = logs - design @ self._fitted
        left = 1 - (design * self._weights.T).sum(axis=1)  # degrees of freedom that each value leaves for the noise
        self._freedom = max(float(left.sum()), 0.0)
        own, squares = (np.bincount(cells, each, len(rates)) for each in (left, away**2))
        prior = np.minimum(ALIKE, np.maximum(self._freedom - own, 0.0))
        common = float(squares.sum()) / max(self._freedom, 1e-9)
        self._each: Values = np.minimum(prior + own, self._freedom)
        self._variances: Values = ((prior * common + squares) / np.maximum(prior + own, 1e-9))[cells]

    def shared(self, ours: Hashable, theirs: Hashable) -> int:
        """How many blocks hold both cells."""
        return len(self.rates.get(ours, {}).keys() & self.rates.get(theirs, {}).keys())

    def ratio(self, ours: Hashable, theirs: Hashable, level: float = RATIO_LEVEL) -> Estimate:
        """How many times as fast one cell is as another; they must share at least ``FEWEST`` blocks."""
        first, second = self._places[ours], self._places[theirs]
        error = math.sqrt(float((self._weights[first] - self._weights[second]) ** 2 @ self._variances))
        freedom = float(min(self._each[first], self._each[second]))
        middle = float(self._fitted[first] - self._fitted[second])
        return _estimate(middle, error, freedom, level, self.shared(ours, theirs))


def together(ratios: Sequence[Estimate]) -> list[Estimate]:
    """Ratios of several cells to one baseline, at levels by which their verdicts hold together.

    With probability ``RATIO_LEVEL`` no cell that equals the baseline is called faster or slower, by
    Holm's procedure ("A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics
    1979): the clearest of m is judged at 1/m of the total error, the next at 1/(m-1), and once one fails, all
    others get its level. It holds for any correlation of the ratios, which share the baseline's noise.
    """
    order = sorted(
        (place for place, ratio in enumerate(ratios) if ratio.low is not None), key=lambda p: ratios[p].chance
    )
    adjusted, left, clear = list(ratios), len(order), True
    for place in order:
        adjusted[place] = ratios[place].at(1 - (1 - RATIO_LEVEL) / left)
        clear = clear and adjusted[place].verdict != "no difference"
        left -= clear
    return adjusted


def median(values: Sequence[float]) -> Estimate:
    """The median and its interval by order statistics, which assume no distribution; of at least one value.

    The k-th smallest and the k-th largest of n values enclose the median, with k = (n - 1.96 sqrt(n)) / 2 rounded
    down (Conover 1999, section 3.2). For n below ``ENOUGH`` the extremes are used, and cover less.
    """
    return Estimate(statistics.median(values), *_ranks(values, len(values)), LEVEL, len(values))


def series(values: Sequence[float]) -> Estimate:
    """The median of positive values of one run in order of time, such as the rates of its blocks; at least one.

    By order statistics over the number of :func:`independent` values; if these are too few, the interval
    is at least as wide as that of Student's t.
    """
    count = independent(values)
    low, high = _ranks(values, count)
    if len(values) >= FEWEST and count < ENOUGH:
        logs, count = _logarithms(values), max(count, FEWEST)
        reach = students_quantile((1 + LEVEL) / 2, count - 1) * float(logs.std(ddof=1)) / math.sqrt(count)
        low, high = min(low, math.exp(logs.mean() - reach)), max(high, math.exp(logs.mean() + reach))
    return Estimate(statistics.median(values), low, high, LEVEL, len(values))


def independent(values: Sequence[float]) -> float:
    """How many independent values say as much about the mean as these, which are in order of time.

    By Geyer's initial positive sequence ("Practical Markov Chain Monte Carlo", Statistical Science 1992, section 3.3),
    which also finds patterns that repeat after several values, like the batches of workers.
    """
    count = len(values)
    away = np.asarray(values, dtype=np.float64)
    away = away - away.mean()
    power = np.abs(np.fft.rfft(away, 2 * count)) ** 2
    covariances = np.fft.irfft(power)[: count // 2 * 2]
    if count < 4 or covariances[0] <= 1e-12 * count * float(np.mean(values)) ** 2:
        return float(count)
    pairs = covariances.reshape(-1, 2).sum(axis=1) / covariances[0]
    positive = len(pairs) if (pairs > 0).all() else int(np.argmax(pairs <= 0))
    together = 2 * float(np.minimum.accumulate(pairs[:positive]).sum()) - 1
    return count / min(max(together, 1.0), float(count))


def mean_ratio(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """One series' mean over another's, over the same two or more steps in order of time, by the delta method."""
    ours, theirs = (np.asarray(side, dtype=np.float64) for side in (above, below))
    away = ours / ours.mean() - theirs / theirs.mean()
    count = max(independent(away.tolist()), FEWEST)
    middle, error = math.log(ours.mean() / theirs.mean()), float(away.std(ddof=1)) / math.sqrt(count)
    return _estimate(middle, error, count - 1, LEVEL, len(away))


def share(count: int, total: int) -> Estimate:
    """``count`` of ``total`` independent cases as a share, with an interval by Clopper and Pearson (Biometrika, 1934).

    Raises:
        ValueError: there is no case.
    """
    if not 0 <= count <= total or not total:
        raise ValueError(f"{count} of {total} is not a share")
    tail = (1 - LEVEL) / 2
    low = beta_quantile(count, total - count + 1, tail) if count else 0.0
    high = beta_quantile(count + 1, total - count, 1 - tail) if count < total else 1.0
    return Estimate(count / total, low, high, LEVEL, total)


def conformal(scores: Sequence[float], level: float) -> float | None:
    """The bound below which the next score lies in a share ``level`` of cases, for any distribution; None for too few.

    The ceil((n + 1) level)-th smallest of n exchangeable ones: Vovk, Gammerman and Shafer, "Algorithmic learning in a
    random world" (2005); Angelopoulos and Bates, "A gentle introduction to conformal prediction" (2021).
    """
    place = math.ceil((len(scores) + 1) * level - 1e-9)
    return sorted(scores)[place - 1] if place <= len(scores) else None


def quantile(values: Sequence[float], share: float) -> float | None:
    """By linear interpolation between the two nearest values; None without any."""
    return float(np.quantile(values, share)) if len(values) else None


def spread(values: Sequence[float]) -> float | None:
    """The interquartile range as a share of the median; None for fewer than four values."""
    if len(values) < 4:
        return None
    low, middle, high = statistics.quantiles(values)
    return (high - low) / middle if middle else None


def needed(ratio: Estimate, threshold: float, most: int = 1000) -> int | None:
    """How many runs a side would show whether an :func:`unpaired` ratio lies above or below a threshold.

    If their spread stays the same and the truth is near the middle, they show it in a share ``POWER`` of cases. None if
    more than ``most`` would be needed, or the spread is unknown.
    """
    if ratio.low is None or ratio.high is None:
        return None
    distance, tail = abs(math.log(ratio.middle / threshold)), (1 + ratio.level) / 2
    reach = math.log(ratio.high / ratio.low) / 2 / students_quantile(tail, 2 * (ratio.n - 1))
    error = reach * math.sqrt(ratio.n)  # of one run

    def settles(count: int) -> bool:
        both = students_quantile(tail, 2 * (count - 1)) + students_quantile(POWER, 2 * (count - 1))
        return both * error <= distance * math.sqrt(count)

    counts = range(ratio.n + 1, most + 1)
    place = bisect_left(counts, True, key=settles)
    return counts[place] if place < len(counts) else None


def looks(planned: int) -> tuple[int, ...]:
    """The numbers of quads after which a trial with so many planned quads is checked."""
    return tuple(planned * times for times in LONGER)


def sequential(ratios: Sequence[float], planned: Sequence[int], alpha: float) -> Estimate:
    """The ratio from quads of turns (A B B A), one ratio each, with an interval that is valid at every check.

    Of trials of equals that are checked after ``planned`` quads, or in between when time has run out, at most a share
    ``alpha`` ever calls the one side faster, and as many the other side, even if
    neighbouring pairs of turns are ``CORRELATED``. See Jennison and Turnbull, "Group Sequential Methods" (1999),
    chapter 9, on repeated confidence intervals; the boundary is found by simulation.
    """
    logs, count = _logarithms(ratios), len(ratios)
    level = 1 - 2 * alpha
    if count < FEWEST:
        return _estimate(float(logs.mean()), None, 0, level, count)
    counts = tuple(sorted({*planned, count}))
    reach = boundary(counts, alpha)[counts.index(count)] * float(logs.std(ddof=1)) / math.sqrt(count)
    reach = min(reach, MOST_REACH)
    middle = float(logs.mean())
    return Estimate(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach), level, count)


@cache
def boundary(counts: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """How many standard errors from 0 the mean of the quads' logarithms must lie, at each of these checks.

    Alpha is spent evenly over the quads. The quantile of Student's t at each check is stretched by one factor, so that
    only a share ``alpha`` of simulated trials of equals, with normal and correlated noise, crosses a bound.
    """
    random = np.random.default_rng(0)
    noise = random.standard_normal((SIMULATED, 2 * counts[-1]))
    for pair in range(1, noise.shape[1]):
        noise[:, pair] = CORRELATED * noise[:, pair - 1] + math.sqrt(1 - CORRELATED**2) * noise[:, pair]
    quads = noise.reshape(SIMULATED, -1, 2).mean(axis=2)
    shape, away = [], np.zeros(SIMULATED)
    for count in counts:
        if count < FEWEST:
            shape.append(math.inf)
            continue
        shape.append(students_quantile(1 - alpha * count / counts[-1], count - 1))
        seen = quads[:, :count]
        away = np.maximum(away, seen.mean(axis=1) / seen.std(axis=1, ddof=1) * math.sqrt(count) / shape[-1])
    return tuple(float(np.quantile(away, 1 - alpha)) * each for each in shape)


def is_over(ratio: Estimate, planned: Sequence[int]) -> bool:
    """Whether a paired trial needs no more quads: it is decided, or promises too little."""
    return ratio.n >= planned[-1] or ratio.verdict in ("faster", "slower") or ratio.middle < PROMISING


def _estimate(middle: float, error: float | None, freedom: float, level: float, n: int) -> Estimate:
    """From logarithms: the middle and its standard error, None if unknown."""
    if error is None:
        return Estimate(math.exp(middle), None, None, level, n)
    reach = min(students_quantile((1 + level) / 2, freedom) * error, MOST_REACH)
    return Estimate(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach), level, n, freedom)


def _ranks(values: Sequence[float], independent: float) -> tuple[float, float]:
    """The values that enclose the median, see :func:`median`."""
    ordered, count = sorted(values), len(values)
    k = max(1, math.floor((count - 1.96 * count / math.sqrt(independent)) / 2))
    return ordered[k - 1], ordered[count - k]


def _logarithms(values: Sequence[float]) -> Values:
    array = np.asarray(values, dtype=np.float64)
    if not array.size or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"rates and ratios are positive numbers, at least one: {list(values)}")
    return np.log(array)
