"""Ranks side by side, and two traces: what takes more time than before; times in microseconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from strobe.records.columns import Floats, Ints
from strobe.traces.operators import Kernel, Operator, kernels, operators
from strobe.traces.rank import RankTrace


@dataclass(frozen=True)
class Compared:
    """Steps that all ranks have; ``work`` (rank by step) is a step without communication that nothing hides."""

    steps: Ints
    work: NDArray[np.float64]

    @property
    def relative(self) -> NDArray[np.float64]:
        """Each rank's work as a multiple of the mean rank's in the same step."""
        found: NDArray[np.float64] = self.work / np.maximum(self.work.mean(0), 1e-9)
        return found

    @property
    def skew(self) -> float:
        """How many times as long as the mean rank the slowest one works, in the mean step."""
        return float(self.relative.max(0).mean()) if self.work.size else 1.0


def compared(ranks: Sequence[RankTrace]) -> Compared:
    """The steps by number that all ranks have, and the work of each in them."""
    steps = reduce(np.intersect1d, [rank.windows[0] for rank in ranks])
    rows = []
    for rank in ranks:
        order = np.argsort(rank.windows[0], kind="stable")
        places = order[np.searchsorted(rank.windows[0], steps, sorter=order)]
        rows.append((rank.lengths - rank.uses["communication"])[places])
    return Compared(steps, np.array(rows).reshape(len(ranks), len(steps)))


def hidden(rank: RankTrace) -> float | None:
    """The share of communication during which this rank computes; None without communication."""
    computing, communicating = rank.busy["computing"], rank.busy["communication"]
    if not communicating.total:
        return None
    return (computing.total + communicating.total - (computing | communicating).total) / communicating.total


def mean_of(values: Floats) -> float:
    """The mean, in seconds; 0 without any."""
    return float(np.mean(values)) / 1e6 if len(values) else 0.0


@dataclass(frozen=True)
class Change:
    """Of an operator's own time, or of a kernel's: calls a step, and microseconds a call, before and after."""

    name: str
    kind: str
    calls: tuple[float, float]
    each: tuple[float, float]

    @property
    def more(self) -> float:
        """Microseconds a step that it takes more than before."""
        return self.calls[1] * self.each[1] - self.calls[0] * self.each[0]

    @property
    def by_calls(self) -> float:
        """Of these, those that come from more calls of the mean length; the rest comes from longer calls."""
        lengths = [each for each, calls in zip(self.each, self.calls, strict=True) if calls]
        return (self.calls[1] - self.calls[0]) * sum(lengths) / len(lengths)


def changes(before: Sequence[RankTrace], after: Sequence[RankTrace]) -> list[Change]:
    """What changed, the most first; of a step of one rank."""
    changed = []
    for kind, of in (("operator", operators), ("kernel", kernels)):
        sides = [(_sums(of(ranks)), sum(len(rank.lengths) for rank in ranks)) for ranks in (before, after)]
        for name in {**sides[0][0], **sides[1][0]}:
            calls, each = [], []
            for rows, steps in sides:
                number, time = rows.get(name, (0, 0.0))
                calls.append(number / steps)
                each.append(time / number if number else 0.0)
            changed.append(Change(name, kind, (calls[0], calls[1]), (each[0], each[1])))
    return sorted(changed, key=lambda change: (-abs(change.more), change.name))


def _sums(rows: Sequence[Operator | Kernel]) -> dict[str, tuple[int, float]]:
    """Calls and microseconds by name, without ranges, which hold what changed."""
    return {
        row.name: (row.calls, row.total if isinstance(row, Kernel) else row.own)
        for row in rows
        if isinstance(row, Kernel) or not row.is_range
    }
