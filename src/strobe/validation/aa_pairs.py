"""Comparisons of a configuration with itself: how runs are dealt to two sides, and what the verdicts come to."""

import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from strobe.measure.statistics import Estimate, unpaired

SIDES = (2, 3, 5)  # runs on each side
DEALINGS = 4  # of one window, at most
SLOWDOWNS = (0.05, 0.1, 0.2)  # shares by which one side's rates are made smaller
AIM = 0.95  # share of "no difference"
ENOUGH = 100  # comparisons

Dealing = tuple[tuple[int, ...], tuple[int, ...]]
Compare = Callable[[Sequence[float], Sequence[float]], Estimate]


@dataclass
class Count:
    """What comparisons of so many runs a side came to."""

    side: int
    windows: int  # that have no run in common
    verdicts: Counter[str] = field(default_factory=Counter)
    widths: list[float] = field(default_factory=list)  # of the intervals, as shares of the ratio
    found: Counter[float] = field(default_factory=Counter)  # slowdowns that were called slower

    @property
    def comparisons(self) -> int:
        """How many were made."""
        return self.verdicts.total()

    @property
    def same(self) -> int:
        """How many said ``no difference``."""
        return self.verdicts["no difference"]

    @property
    def width(self) -> float | None:
        """The median width; None where no interval had one."""
        return statistics.median(self.widths) if self.widths else None


def deal(runs: int, side: int, seed: int = 0) -> list[Dealing]:
    """The runs of both sides of each comparison, as places in the order of time.

    A sweep of two cells with interleaved repeats visits both in each round, in random order. So a comparison takes a
    window of consecutive runs, two for each round, and of each two neighbours a random one goes to either side: no run
    is on both. All windows are taken, which overlap, and of each several dealings, no two of which are the same or the
    same with its sides changed.
    """
    chance = random.Random(f"{seed} {side}")
    found = []
    for first in range(runs - 2 * side + 1):
        ways = 2 ** (side - 1)  # the first pair as it is; the rest either way
        for way in chance.sample(range(ways), min(ways, DEALINGS)):
            swaps = [way >> pair & 1 for pair in range(side)]
            ours = tuple(first + 2 * pair + swap for pair, swap in enumerate(swaps))
            theirs = tuple(first + 2 * pair + 1 - swap for pair, swap in enumerate(swaps))
            found.append((ours, theirs) if chance.random() < 0.5 else (theirs, ours))
    return found


def count(rates: Sequence[float], seed: int = 0, compare: Compare = unpaired) -> list[Count]:
    """What the comparisons of runs of one configuration come to, for each number of runs a side.

    Numbers for which there are too few runs are left out. A slowdown of one side is a factor of the ratio and of both
    ends of its interval, and is made up so.

    Args:
        rates: Images/s of the runs, in the order of time.
        seed: Of the dealing.
        compare: Gives the ratio of two sides.
    """
    counts = []
    for side in SIDES:
        dealings = deal(len(rates), side, seed)
        if not dealings:
            continue
        counts.append(one := Count(side, windows=len(rates) // (2 * side)))
        for ours, theirs in dealings:
            ratio = compare([rates[run] for run in ours], [rates[run] for run in theirs])
            one.verdicts[ratio.verdict] += 1
            if ratio.low is None or ratio.high is None:
                continue
            one.widths.append((ratio.high - ratio.low) / ratio.middle)
            for slowdown in SLOWDOWNS:
                one.found[slowdown] += ratio.times(1 - slowdown).verdict == "slower"
    return counts
