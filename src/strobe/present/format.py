"""Numbers as text: for the terminal, pages, pictures and sentences alike."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.measure import WIDEST

UNKNOWN = "not known"  # an interval that is too wide to say more
TIMES = "\u00d7"
_NAMES = ("Python's", "Linux")  # which a sentence may begin with, and that are not written like code
_UNITS = ((0.9995e-3, 1e6, "µs"), (0.9995, 1e3, "ms"), (119.5, 1.0, "s"), (7170, 1 / 60, "min"))


def figure(value: float, digits: int = 3) -> str:
    """A number with at least so many digits: 0.00123, 4.56, 78.6, 1,234."""
    if not value or not math.isfinite(value):
        return f"{value:.0f}"
    places = digits - 1 - math.floor(math.log10(abs(value) * (1 + 0.5 * 10**-digits)))
    return f"{value:,.{min(9, max(0, places))}f}"


def rate(images_per_second: float) -> str:
    """A rate in a sentence or a terminal, without its unit: 3.1, 62, 1,060."""
    return f"{images_per_second:,.0f}" if images_per_second >= 9.95 else f"{images_per_second:.1f}"


def pace(images_per_second: float) -> str:
    """A rate with its unit: 1,060 images/s."""
    return f"{rate(images_per_second)} images/s"


def percent(share: float) -> str:
    """A share of 1 in percent; a small one that would be rounded to 0 is ``<1%``."""
    return "<1%" if 0 < share < 0.005 else f"{share:,.0%}"


def times(factor: float) -> str:
    """A factor, such as a speed-up: 1.83 with the sign for times."""
    return f"{factor:,.{2 if factor < 100 else 0}f}{TIMES}"


def as_fast(factor: float) -> str:
    """A speed-up in a sentence: ``1.83x as fast``, with one digit from 1.5 on: ``2.4x as fast``."""
    return f"{factor:.{1 if factor >= 1.5 else 2}f}x as fast"


def listed(names: Sequence[str]) -> str:
    """As a sentence lists them: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def counted(number: int, noun: str) -> str:
    """A number of things: 1 step, 2,000 steps."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def inside(sentence: str, name: str = "") -> str:
    """A sentence as it stands within another one: in small, unless its first word is a name, such as ``DataLoader``.

    ``name`` is one that it may begin with, such as a callback's class.
    """
    first = sentence.partition(" ")[0]
    named = first in _NAMES or (name and sentence.startswith(name)) or any(not c.islower() for c in first[1:])
    return sentence if named else sentence[:1].lower() + sentence[1:]


def cores(number: float) -> str:
    """An amount of computing: 1 core, 0.25 cores, 1.9 cores."""
    return f"{number:.2g} core{'s' * (f'{number:.2g}' != '1')}"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds without the unit: 0.33, 43.7, 1,314."""
    value = seconds * 1e3
    return f"{value:,.{0 if abs(value) >= 999.5 else 1 if abs(value) >= 0.95 else 2}f}"


def duration(seconds: float) -> str:
    """Seconds with the unit that suits: 331 µs, 43.7 ms, 1.86 s, 12.5 min."""
    for limit, scale, unit in _UNITS:
        if abs(seconds) < limit:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds / 3600:,.3g} h" if seconds < 3.6e6 else f"{seconds / 3600:,.0f} h"


def size(count: float) -> str:
    """Bytes with the decimal unit that suits: 512 B, 1.6 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1e3
    return f"{count:,.3g} TB" if abs(count) < 999.5 else f"{count:,.0f} TB"


def interval(low: float | None, high: float | None, show: Callable[[float], str] = figure) -> str:
    """The two ends: ``75.0 to 80.7``; empty if one is unknown, words if they are too far apart to say much."""
    if low is None or high is None:
        return ""
    return "interval too wide" if is_wide(low, high) else f"{show(low)} to {show(high)}"


def is_wide(low: float | None, high: float | None) -> bool:
    """Whether the ends are known, and too far apart to say much."""
    return low is not None and high is not None and 0 < WIDEST * low < high


def differ(number: int, what: str) -> str:
    """What stands in a sentence for a figure whose interval is too wide: ``not known: 3 runs differ too much``."""
    return f"{UNKNOWN}: {counted(number, what)} differ too much"


def estimate(value: Mapping[str, Any] | None, show: Callable[[float], str] = figure) -> str:
    """A median with its interval: ``62.7 (50.4 to 78.1)``, unless that is unknown or has no width."""
    if value is None or value["median"] is None:
        return ""
    median, ends = show(value["median"]), interval(value["low"], value["high"], show)
    return f"{median} ({ends})" if ends and ends != f"{median} to {median}" else median


@dataclass(frozen=True)
class Value:
    """A figure with its interval, if there is one: 95% of a rate; of a ratio as wide as suits the number of cells.

    ``of`` says over what: runs, or the steps of one run.
    """

    median: float
    low: float | None = None
    high: float | None = None
    of: str = "runs"

    @property
    def interval(self) -> str:
        """``75.0 to 80.7``; empty where it is not known."""
        return interval(self.low, self.high)

    @property
    def factors(self) -> str:
        """``1.31 to 1.55``: the interval of a ratio, beside which the sign for times stands already."""
        return interval(self.low, self.high, lambda value: times(value).removesuffix(TIMES))

    @property
    def tells(self) -> bool:
        """Whether its interval is known, and narrow enough to be drawn."""
        return self.low is not None and self.high is not None and self.high <= WIDEST * self.low

    @property
    def ends(self) -> list[float]:
        """The figure and the ends of its interval, as far as they are known."""
        return [end for end in (self.low, self.median, self.high) if end is not None]


def written(mark: float) -> str:
    """A number beside an axis: 0.5, 2,000, 3 M."""
    return f"{mark / 1e6:,.10g} M" if abs(mark) >= 1e6 else f"{mark:,.10g}"


def cut(text: str, most: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def here(path: Path) -> str:
    """A path as one would type it in this folder."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
