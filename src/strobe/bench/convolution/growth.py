"""How times grow with the side of an image: seconds = c * n^p, a straight line in logarithms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

_LEVEL = 0.95


@dataclass(frozen=True)
class Growth:
    """A power of the side n of an image.

    An exponent p of 2 means that the work grows with the number of pixels. Small images take about the time of the
    call itself, whatever their size: over sizes among which there are such, p comes out too low, and ``local``, between
    the two largest, is nearer to what larger ones will take. Caches that overflow raise both.
    """

    exponent: float
    """p, by least squares in logarithms over all sizes."""

    interval: tuple[float, float] | None
    """The 95% interval of p by Student's t with two degrees of freedom less than sizes; None for two sizes.

    It holds if the points scatter about one line. It says nothing of a line that is bent.
    """

    seconds_at_one: float
    """c."""

    local: float
    """The exponent between the two largest sizes."""

    def seconds(self, side: float) -> float:
        """What the fit gives for an image of that side."""
        return self.seconds_at_one * math.pow(side, self.exponent)


def fit_growth(sides: Sequence[float], seconds: Sequence[float]) -> Growth:
    """Fit a power to times.

    Args:
        sides: n of each image, in any order, each once.
        seconds: What each took, above 0.

    Raises:
        ValueError: There are fewer than two sizes, one is there twice, or a number is not above 0.
    """
    if len(sides) != len(seconds):
        raise ValueError(f"{len(sides)} sizes and {len(seconds)} times are given; give one time for each size")
    if len(set(sides)) != len(sides) or len(sides) < 2:
        raise ValueError(f"The sizes {list(sides)} allow no fit; give at least two, each once")
    for number in (*sides, *seconds):
        if not (math.isfinite(number) and number > 0):
            raise ValueError(f"{number} has no logarithm to fit; give sizes and times above 0")
    order = np.argsort(sides)
    x, y = (np.log(np.asarray(values, dtype=np.float64)[order]) for values in (sides, seconds))
    away = x - x.mean()
    spread = float(away @ away)
    exponent = float(away @ y) / spread
    constant = float(y.mean() - exponent * x.mean())
    freedom = len(x) - 2
    interval = None
    if freedom:
        rest = y - constant - exponent * x
        width = float(student.ppf((1 + _LEVEL) / 2, freedom)) * math.sqrt(float(rest @ rest) / freedom / spread)
        interval = (exponent - width, exponent + width)
    return Growth(exponent, interval, math.exp(constant), float((y[-1] - y[-2]) / (x[-1] - x[-2])))
