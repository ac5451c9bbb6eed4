"""The slowest steps of a trace, and what was different in them."""

from dataclasses import dataclass

import numpy as np

from strobe.records.columns import KERNEL, OPERATOR, Floats
from strobe.traces.rank import RankTrace

MOST, DIFFERENCES = 3, 4  # steps, and what is named of each
_LEAST = 0.02  # of the median step: a smaller difference is not named


@dataclass(frozen=True)
class Slow:
    """A slow step: its number, its place, its microseconds, and what took so many more than in the median step."""

    number: int
    place: int
    length: float
    more: tuple[tuple[str, float], ...]


def slowest(rank: RankTrace) -> list[Slow]:
    """The slowest steps, the first one first; none where there are fewer than three."""
    numbers, _, _ = rank.windows
    if len(numbers) < 3:
        return []
    typical = float(np.median(rank.lengths))
    slow = []
    by_name = _times(rank)
    for place in np.argsort(-rank.lengths, kind="stable")[:MOST]:
        more = [(name, float(times[place] - np.median(times))) for name, times in by_name.items()]
        more = sorted((one for one in more if one[1] > _LEAST * typical), key=lambda one: -one[1])
        slow.append(Slow(int(numbers[place]), int(place), float(rank.lengths[place]), tuple(more[:DIFFERENCES])))
    return slow


def _times(rank: RankTrace) -> dict[str, Floats]:
    """Microseconds of each step: idle by cause, phases, and the own times of the largest operators and kernels."""
    at, (_, own), (_, starts, ends) = rank.columns, rank.nest, rank.windows
    found = {f"phase {name}": times for name, times in rank.phases.items()}
    if rank.device is not None:
        found |= {f"idle: {name}" if name in rank.idle else name: times for name, times in rank.uses.items()}
    each: tuple[tuple[int, Floats], ...] = ((OPERATOR, own), (KERNEL, at.length))
    for kind, weights in each:
        places = at.of(kind)
        step = np.searchsorted(starts, at.start[places], "right") - 1
        inside = (step >= 0) & (at.start[places] < ends[step])
        names, number = np.unique(at.name[places][inside], return_inverse=True)
        width = len(names)
        sums = np.bincount(step[inside] * width + number, weights[places][inside], width * len(starts))
        table = sums.astype(np.float64).reshape(len(starts), width)
        for column in np.argsort(-(table.max(0) - np.median(table, 0)))[:50]:
            found[at.names.texts[names[column]]] = table[:, column]
    return found
