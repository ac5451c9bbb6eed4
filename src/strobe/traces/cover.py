"""Times that at least one of many ranges covers."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from strobe.records.columns import Floats, Mask


@dataclass(frozen=True)
class Cover:
    """Disjoint ranges in order; ``edges`` are their starts and ends in turn."""

    edges: Floats

    @cached_property
    def _sums(self) -> Floats:
        """How much is covered up to each edge."""
        lengths = np.zeros(len(self.edges))
        lengths[1::2] = self.ends - self.starts
        return np.cumsum(lengths)

    @property
    def starts(self) -> Floats:
        """When each begins."""
        return self.edges[0::2]

    @property
    def ends(self) -> Floats:
        """When each ends."""
        return self.edges[1::2]

    @property
    def total(self) -> float:
        """How much is covered."""
        return float(self._sums[-1]) if len(self.edges) else 0.0

    @property
    def longest(self) -> tuple[float, float] | None:
        """The start and the end of the longest piece; None if nothing is covered."""
        if not len(self.edges):
            return None
        place = int(np.argmax(self.ends - self.starts))
        return float(self.starts[place]), float(self.ends[place])

    def within(self, starts: Floats, ends: Floats) -> Floats:
        """How much of each window is covered."""
        if not len(self.edges):
            return np.zeros(len(starts))
        upto = np.interp(np.concatenate([starts, ends]), self.edges, self._sums)
        found: Floats = upto[len(starts) :] - upto[: len(starts)]
        return found

    def hold(self, times: Floats) -> Mask:
        """Which times are covered; the end of a piece is not."""
        found: Mask = np.searchsorted(self.edges, times, "right") % 2 == 1
        return found

    def __or__(self, other: "Cover") -> "Cover":
        return cover(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def __and__(self, other: "Cover") -> "Cover":
        start, end = self._span(other)
        return (self.gaps(start, end) | other.gaps(start, end)).gaps(start, end)

    def __sub__(self, other: "Cover") -> "Cover":
        return self & other.gaps(*self._span(other))

    def gaps(self, start: float, end: float) -> "Cover":
        """What is not covered between two times."""
        inside = (self.ends > start) & (self.starts < end)
        edges = np.concatenate([[start], np.column_stack([self.starts[inside], self.ends[inside]]).ravel(), [end]])
        starts, ends = np.clip(edges[0::2], start, end), np.clip(edges[1::2], start, end)
        return Cover(np.column_stack([starts, ends])[ends > starts].ravel())

    def _span(self, other: "Cover") -> tuple[float, float]:
        edges = np.concatenate([self.edges, other.edges, [0.0]])
        return float(edges.min()), float(edges.max())


NOTHING = Cover(np.empty(0))


def cover(starts: Floats, ends: Floats) -> Cover:
    """What ranges cover together."""
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order]) if len(ends) else ends
    first = np.ones(len(starts), bool)
    first[1:] = starts[1:] > reached[:-1]
    last = np.flatnonzero(first)[1:] - 1
    return Cover(np.column_stack([starts[first], reached[np.append(last, len(starts) - 1)[: first.sum()]]]).ravel())
