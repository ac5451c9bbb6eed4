"""Axes: where a value lies, and which round numbers are written beside it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_CLOSE = 0.17  # of the axis; farther from its start than this, the start is written too
_ROUND = ((1, 2, 5), (1, 3), (1,))  # within a decade, the densest first
_FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_FINER = (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5)
_FAR = 4.0  # from the least to the most, from which on ratios and rates lie by factors


def ticks(top: float, most: int = 5) -> list[float]:
    """Round numbers from 0 up to ``top``: 0, and at most so many others."""
    if not (math.isfinite(top) and top > 0):
        return [0.0]
    power = 10.0 ** math.floor(math.log10(top / most))
    step = next(width * power for width in (1, 2, 2.5, 5, 10, 20) if top / (width * power) <= most + 1e-9)
    return [number * step for number in range(math.floor(top / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Scale:
    """From ``start`` to ``end``, evenly or by factors."""

    start: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """A share of the axis, from 0 to 1; values beyond it lie on its ends."""
        start, end, value = (math.log(each) if self.logarithmic else each for each in (self.start, self.end, value))
        return min(1.0, max(0.0, (value - start) / (end - start))) if end > start else 0.5

    def marks(self, most: int = 5) -> list[float]:
        """Round numbers on it, so many at most; of a logarithmic one decades, and parts of them where few fit."""
        if not self.logarithmic:
            return [mark for mark in ticks(self.end, most - 1) if mark >= self.start]
        first, last = math.floor(math.log10(self.start)), math.ceil(math.log10(self.end))
        for parts in _ROUND:
            found = [part * 10.0**power for power in range(first, last + 1) for part in parts]
            found = [mark for mark in found if self.start * 0.999 <= mark <= self.end * 1.001]
            if len(found) <= most:
                break
        found = found[:: math.ceil(len(found) / most)]
        return found if found and self.place(found[0]) < _CLOSE else [self.start, *found]


def axis(values: Iterable[float], *, logarithmic: bool) -> Scale:
    """An axis for measured values, all of them above 0: from 0, or from a round number well below the lowest."""
    values = list(values) or [1.0]
    if not logarithmic:
        return Scale(0.0, 1.04 * max(values))
    below = min(values) / 1.25
    power = 10.0 ** math.floor(math.log10(below))
    start = max(part * power for part in (1, 2, 5) if part * power <= below * 1.0001)
    return Scale(start, 1.08 * max(values), logarithmic=True)


def axis_of_rates(values: Sequence[float]) -> Scale:
    """An axis for bars of rates; by factors where one is so far beyond the lowest that they could not be told apart."""
    return axis(values, logarithmic=max(values) > _FAR * min(values))


def along(values: Iterable[float], *, logarithmic: bool) -> Scale:
    """An axis from the first to the last of some settings; by factors too where that sets them further apart."""
    places = sorted(set(values))
    plain = Scale(places[0], places[-1])
    if places[0] <= 0 or len(places) < 2:
        return plain

    def nearest(scale: Scale) -> float:
        return min(scale.place(later) - scale.place(earlier) for earlier, later in pairwise(places))

    factors = Scale(places[0], places[-1], logarithmic=True)
    return factors if logarithmic or nearest(factors) > nearest(plain) + 1e-9 else plain


def around_one(values: Iterable[float]) -> tuple[Scale, list[float]]:
    """An axis for ratios that holds 1, and its round numbers."""
    known = [value for value in values if 0 < value < math.inf]
    low, high = min([1.0, *known]), max([1.0, *known])
    if high / low > _FAR:
        low, high = max(low / 1.15, 1e-3), min(high * 1.15, 1e3)
        marks = [mark for mark in _FACTORS if low <= mark <= high]
        if len(marks) < 4:
            marks = [mark for mark in _FINER if low <= mark <= high]
        return Scale(low, high, logarithmic=True), marks
    room = max(0.06 * (high - low), 0.01)
    low, high = low - room, high + room
    steps = ticks(high - low, 6)
    step = steps[1] if len(steps) > 1 else high - low
    marks = [1 + number * step for number in range(-20, 21)]
    return Scale(low, high), [round(mark, 9) for mark in marks if low <= mark <= high]
