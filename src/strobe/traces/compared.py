"""Ranks side by side: who works how long in each step, and who waits for whom; times in microseconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from strobe.records.columns import Floats, Ints
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
