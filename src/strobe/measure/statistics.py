"""How certain a figure is: estimates with intervals, ratios of speeds, verdicts, and when to stop measuring.

Rates and ratios of independent runs are taken as logarithms, in which a ratio is a difference, and get an interval by
Student's t. A sweep that visits all its cells once a repeat is a randomised block design: what slows a whole repeat
concerns no ratio. Values of one run in the order of time resemble their neighbours: they get their median, and an
interval by order statistics over as many values as would be independent. Imports scipy only where a quantile is asked
for.
"""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from strobe.measure import WIDEST

FEWEST = 2  # values on either side, below which there is neither an interval nor a verdict
LEVEL = 0.95
# Of the interval of a ratio. Runs of a real machine resemble their neighbours, however they are interleaved: with 97%
# a configuration that is compared with itself shows no difference at least 95 times in 100.
RATIO_LEVEL = 0.97
ENOUGH = 6  # values, from which on the least and the greatest enclose the median 95 times in 100
ALIKE = 4.0  # values of its own, by as many of which a cell's noise is taken to be that of all cells of its sweep
POWER = 0.8  # with which as many more values as ``needed`` says would settle it

# A paired trial is looked at more than once.
FALSE_ALARM = 0.04  # of trials of equals, or of whole searches, may find one side faster, and as many the other one
CORRELATED = 0.6  # neighbouring pairs of turns, at the most: what a boundary must bear
LONGER = (1, 2, 4)  # times as many quads as planned, after which a trial is looked at
PROMISING = 1.03  # times as fast, as it looks: less is not worth more time
MOST_REACH = 50.0  # in logarithms: an interval that is wider says no more
SIMULATED = 40_000  # trials of equals, by which a boundary is found

Verdict = Literal["faster", "slower", "no difference", "too few runs"]
Values = NDArray[np.float64]
Interval = dict[str, Any]  # an estimate as records have it: median, low and high, each a number or None


@dataclass(frozen=True)
class Estimate:
    """A figure and the interval that holds the truth in a share ``level`` of all cases; no ends for too few values.

    Attributes:
        middle: the geometric mean of rates and ratios; the median of what was measured in one run.
        low: the interval's lower end.
        high: its upper end.
        level: of the interval.
        n: how many values it rests on, of two sides those of the side that has fewer.
        freedom: degrees of freedom, of an interval by Student's t.
    """

    middle: float
    low: float | None
    high: float | None
    level: float
    n: int
    freedom: float | None = field(default=None, compare=False)

    @property
    def verdict(self) -> Verdict:
        """What a ratio says: ``no difference`` if its interval holds 1, ``too few runs`` if it has none."""
        if self.low is None or self.high is None:
            return "too few runs"
        return "slower" if self.high < 1 else "faster" if self.low > 1 else "no difference"

    @property
    def wide(self) -> bool:
        """Whether its ends lie further apart than ``WIDEST``: its runs differ too much."""
        return self.low is not None and self.high is not None and self.high > WIDEST * self.low

    @property
    def within(self) -> float | None:
        """How far the interval reaches from the middle, on its longer side, as a share of it; None without ends."""
        if self.low is None or self.high is None:
            return None
        return max(self.high - self.middle, self.middle - self.low) / self.middle

    def times(self, factor: float) -> "Estimate":
        """The estimate of a multiple."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return replace(self, middle=self.middle * factor, low=low, high=high)

    def at(self, level: float) -> "Estimate":
        """The same with an interval of another level; as it is where that is not by Student's t."""
        if self.low is None or self.high is None or self.freedom is None:
            return self
        return _estimate(math.log(self.middle), self._error, self.freedom, level, self.n)

    @property
    def _error(self) -> float:
        """The standard error of the logarithm."""
        assert self.low is not None
        assert self.high is not None
        assert self.freedom is not None
        return math.log(self.high / self.low) / 2 / float(_student((1 + self.level) / 2, self.freedom))

    @property
    def chance(self) -> float:
        """Of equals, the share that would differ by as much or more; 1 where that is not known."""
        from scipy.special import stdtr

        if self.low is None or self.high is None or self.freedom is None:
            return 1.0
        away, error = abs(math.log(self.middle)), self._error
        return 2 * float(stdtr(self.freedom, -away / error)) if error else float(away == 0)

    def as_record(self) -> Interval:
        """As it stands in ``summary.json``, ``results.json`` and ``comparison.json``."""
        return {"median": self.middle, "low": self.low, "high": self.high}


def recorded(estimate: Estimate | None) -> Interval:
    """As it stands in a record, where nothing was measured too."""
    return {"median": None, "low": None, "high": None} if estimate is None else estimate.as_record()


def interval(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """The geometric mean of independent positive values, such as one cell's rates over its runs, at least one."""
    logs = _logarithms(values)
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs)) if len(logs) >= FEWEST else None
    return _estimate(float(logs.mean()), error, len(logs) - 1, level, len(logs))


def paired(ratios: Sequence[float]) -> Estimate:
    """The ratio of which each round, or pair of turns, has measured one: positive numbers, at least one."""
    return interval(ratios, RATIO_LEVEL)


def unpaired(ours: Sequence[float], theirs: Sequence[float], *, level: float = RATIO_LEVEL) -> Estimate:
    """How many times as fast ``ours`` are as ``theirs``: rates of independent runs, all positive, at least one each.

    Welch's interval for a difference of logarithms, with as many degrees of freedom at most as if both sides had the
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
    """Rates of several cells, of which each block holds one of each cell, or of some: a randomised block design.

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
        left = 1 - (design * self._weights.T).sum(axis=1)  # degrees of freedom that each value leaves to the noise
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
        """How many times as fast one cell is as another, with which it shares ``FEWEST`` blocks at least."""
        first, second = self._places[ours], self._places[theirs]
        error = math.sqrt(float((self._weights[first] - self._weights[second]) ** 2 @ self._variances))
        freedom = float(min(self._each[first], self._each[second]))
        middle = float(self._fitted[first] - self._fitted[second])
        return _estimate(middle, error, freedom, level, self.shared(ours, theirs))


def together(ratios: Sequence[Estimate]) -> list[Estimate]:
    """Ratios of several cells to one baseline, at levels by which their verdicts hold together.

    With the probability ``RATIO_LEVEL`` none of the cells that are equal to the baseline is called faster or slower, by
    Holm's procedure ("A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics
    1979): the clearest of m is judged at 1/m of the errors that all may make, the next at 1/(m-1), and from the first
    that is not told apart all have its level. It bears any correlation of the ratios, which share the baseline's noise.
    """
    order = sorted(
        (place for place, ratio in enumerate(ratios) if ratio.low is not None), key=lambda p: ratios[p].chance
    )
    found, left, told = list(ratios), len(order), True
    for place in order:
        found[place] = ratios[place].at(1 - (1 - RATIO_LEVEL) / left)
        told = told and found[place].verdict != "no difference"
        left -= told
    return found


def median(values: Sequence[float], *, independent: float | None = None) -> Estimate:
    """The median and its interval by order statistics, which assume no distribution; of one value at least.

    The k-th smallest and the k-th largest of n values enclose the median, with k = (n - 1.96 sqrt(n)) / 2 rounded
    down (Conover 1999, section 3.2). For n below ``ENOUGH`` the extremes are all there is, and cover less. Values that
    tell as much as fewer ``independent`` ones get an interval that is as much wider.
    """
    return Estimate(statistics.median(values), *_ranks(values, independent or len(values)), LEVEL, len(values))


def series(values: Sequence[float]) -> Estimate:
    """The median of positive values of one run in the order of time, such as the rates of its blocks; at least one.

    By order statistics over as many values as are :func:`independent`; where these are too few for that, the interval
    is as wide at least as that of Student's t for so many.
    """
    count = independent(values)
    low, high = _ranks(values, count)
    if len(values) >= FEWEST and count < ENOUGH:
        logs, count = _logarithms(values), max(count, FEWEST)
        reach = float(_student((1 + LEVEL) / 2, count - 1)) * float(logs.std(ddof=1)) / math.sqrt(count)
        low, high = min(low, math.exp(logs.mean() - reach)), max(high, math.exp(logs.mean() + reach))
    return Estimate(statistics.median(values), low, high, LEVEL, len(values))


def independent(values: Sequence[float]) -> float:
    """How many independent values tell as much about the mean as these, which are in the order of time.

    By Geyer's initial positive sequence ("Practical Markov Chain Monte Carlo", Statistical Science 1992, section 3.3),
    which finds also what comes again after several values, as batches of workers do.
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


def share(count: int, total: int) -> Estimate:
    """So many of ``total`` independent cases, as a share; by Clopper and Pearson (Biometrika, 1934).

    Raises:
        ValueError: no case.
    """
    from scipy.special import betaincinv

    if not 0 <= count <= total or not total:
        raise ValueError(f"{count} of {total} is no share")
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return Estimate(count / total, low, high, LEVEL, total)


def conformal(scores: Sequence[float], level: float) -> float | None:
    """Below which the next score lies in a share ``level`` of all cases, whatever their distribution; None for too few.

    The ceil((n + 1) level)-th smallest of n exchangeable ones: Vovk, Gammerman and Shafer, "Algorithmic learning in a
    random world" (2005); Angelopoulos and Bates, "A gentle introduction to conformal prediction" (2021).
    """
    place = math.ceil((len(scores) + 1) * level - 1e-9)
    return sorted(scores)[place - 1] if place <= len(scores) else None


def quantile(values: Sequence[float], share: float) -> float | None:
    """Between the two nearest of the values, linearly; None without any."""
    return float(np.quantile(values, share)) if len(values) else None


def spread(values: Sequence[float]) -> float | None:
    """The distance of the quartiles, as a share of the median; None for fewer than four."""
    if len(values) < 4:
        return None
    low, middle, high = statistics.quantiles(values)
    return (high - low) / middle if middle else None


def needed(ratio: Estimate, threshold: float, most: int = 1000) -> int | None:
    """How many runs a side would show on which side of a threshold an :func:`unpaired` ratio lies.

    If their spread stays what it was and the truth is near the middle, they show it in ``POWER`` of all cases. None if
    more than ``most`` would be needed, or nothing is known of the spread.
    """
    if ratio.low is None or ratio.high is None:
        return None
    distance, tail = abs(math.log(ratio.middle / threshold)), (1 + ratio.level) / 2
    error = math.log(ratio.high / ratio.low) / 2 / _student(tail, 2 * (ratio.n - 1)) * math.sqrt(ratio.n)  # of one run
    counts = np.arange(ratio.n + 1, most + 1)
    reach = (_student(tail, 2 * (counts - 1)) + _student(POWER, 2 * (counts - 1))) * error
    enough = counts[reach <= distance * np.sqrt(counts)]
    return int(enough[0]) if len(enough) else None


def looks(planned: int) -> tuple[int, ...]:
    """After how many quads a trial is looked at that was planned for so many."""
    return tuple(planned * times for times in LONGER)


def sequential(ratios: Sequence[float], planned: Sequence[int], alpha: float) -> Estimate:
    """The ratio by quads of turns (A B B A), each of which has measured one, with an interval for every look.

    Of trials of equals that are looked at after ``planned`` quads, or between these when time has run out, a share of
    ``alpha`` at most finds at any look that the one side is faster, and as large a share that the other one is; also
    where neighbouring pairs of turns are ``CORRELATED``. See Jennison and Turnbull, "Group Sequential Methods" (1999),
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
    """Beyond how many standard errors the mean of so many quads' logarithms must lie, at each of these looks.

    Alpha is spent evenly with the quads. Each look's quantile of Student's t is stretched by one factor, by which all
    but a share ``alpha`` of simulated trials of equals, with normal and correlated noise, cross no bound.
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
        shape.append(float(_student(1 - alpha * count / counts[-1], count - 1)))
        seen = quads[:, :count]
        away = np.maximum(away, seen.mean(axis=1) / seen.std(axis=1, ddof=1) * math.sqrt(count) / shape[-1])
    return tuple(float(np.quantile(away, 1 - alpha)) * each for each in shape)


def is_over(ratio: Estimate, planned: Sequence[int]) -> bool:
    """Whether a paired trial that has been looked at needs no more quads: it is decided, or promises too little."""
    return ratio.n >= planned[-1] or ratio.verdict in ("faster", "slower") or ratio.middle < PROMISING


def _student(share: float, freedom: float | NDArray[np.int64]) -> Any:
    """Student's t below which lies such a share of cases."""
    from scipy.special import stdtrit

    return stdtrit(freedom, share)


def _estimate(middle: float, error: float | None, freedom: float, level: float, n: int) -> Estimate:
    """From logarithms: the middle and its standard error, None where it is not known."""
    if error is None:
        return Estimate(math.exp(middle), None, None, level, n)
    reach = min(float(_student((1 + level) / 2, freedom)) * error, MOST_REACH)
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
