"""Shares and quantiles of Student's t and of the beta distribution, to ten digits, without scipy."""

import math
from functools import cache

_TINY = 1e-300


def beta_share(a: float, b: float, x: float) -> float:
    """The share of a beta distribution below ``x``, the regularised incomplete beta function.

    By its continued fraction (Abramowitz and Stegun, 26.5.8), with Lentz's method (Applied Optics, 1976).
    """
    if not 0 < x < 1:
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - beta_share(b, a, 1 - x)
    upper, lower, value, change, place = math.inf, 1.0, 1.0, 0.0, 0
    while abs(change - 1) > 1e-15:
        half, odd = divmod(place := place + 1, 2)
        over = -(a + half) * (a + b + half) if odd else half * (b - half)
        term = over * x / ((a + place - 1) * (a + place))
        lower = 1 / (1 + term * lower or _TINY)
        upper = 1 + term / upper or _TINY
        change = upper * lower
        value *= change
    return x * (1 - x) * _density(a, b, x) * value / a


def _density(a: float, b: float, x: float) -> float:
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(scale + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x))


@cache
def beta_quantile(a: float, b: float, share: float) -> float:
    """The inverse of :func:`beta_share`: by Newton's method, and by bisection if that leaves the bracket."""
    if not 0 < share < 1:
        return float(share >= 1)
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(1100):  # halvings down to the smallest number
        away = beta_share(a, b, x) - share
        low, high = (x, high) if away < 0 else (low, x)
        new = x - away / (_density(a, b, x) or _TINY)
        new = new if low < new < high else (low + high) / 2
        if abs(new - x) <= 1e-15 * x:
            break
        x = new
    return x


def students_tails(t: float, freedom: float) -> float:
    """The share of Student's t that is further from 0 than ``t``, on both sides."""
    return beta_share(freedom / 2, 0.5, freedom / (freedom + t * t))


def students_quantile(share: float, freedom: float) -> float:
    """The value of Student's t below which a share of cases lies; infinite without degrees of freedom."""
    tails = 2 * min(share, 1 - share)
    if freedom <= 0 or not tails:
        return math.copysign(math.inf, share - 0.5)
    if tails < 0.5:  # the smaller part is found more exactly
        inside = beta_quantile(freedom / 2, 0.5, tails)
        square = freedom * (1 - inside) / inside
    else:
        outside = beta_quantile(0.5, freedom / 2, 1 - tails)
        square = freedom * outside / (1 - outside)
    return math.copysign(math.sqrt(square), share - 0.5)
