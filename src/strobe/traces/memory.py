"""Memory over time, where the profiler recorded it, and the operators that took most at once."""

from dataclasses import dataclass

import numpy as np

from strobe.records.columns import MEMORY, Floats
from strobe.traces.rank import RankTrace

POINTS, MOST = 400, 12  # of a curve; operators named


@dataclass(frozen=True)
class Held:
    """Bytes that were held on a device over time, in microseconds, and the largest pieces by operator."""

    device: str
    times: Floats
    held: Floats
    largest: tuple[tuple[str, float, int, float], ...]  # name, bytes of the largest piece, pieces, bytes of all


def memory(rank: RankTrace) -> list[Held]:
    """A curve for each device; none where memory was not recorded (``profile_memory=True`` does that)."""
    at, (parent, _) = rank.columns, rank.nest
    curves = []
    for number in np.unique(at.device[at.kind == MEMORY]).tolist():
        places = at.of(MEMORY)
        places = places[at.device[places] == number]
        held = at.extra[places]
        bins = np.linspace(0, len(places), min(POINTS, len(places)) + 1).astype(int)[:-1]
        peaks = np.maximum.reduceat(held, bins)
        by: dict[str, list[float]] = {}
        for place in places[at.size[places] > 0].tolist():
            up = int(parent[place])
            sums = by.setdefault(at.names.texts[at.name[up]] if up >= 0 else "outside of operators", [0.0, 0, 0.0])
            sums[0] = max(sums[0], float(at.size[place]))
            sums[1] += 1
            sums[2] += float(at.size[place])
        largest = sorted(
            ((name, most, int(count), total) for name, (most, count, total) in by.items()), key=lambda one: -one[1]
        )
        device = "CPU" if number < 0 else f"device {number}"
        curves.append(Held(device, at.start[places][bins], peaks, tuple(largest[:MOST])))
    return curves
