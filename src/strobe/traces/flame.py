"""Flame graphs: what calls what, merged over a whole trace, or of one step in the order of time."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from strobe.records.columns import ANNOTATION, CALL, LOADER, ON_DEVICE, ON_HOST, OPERATOR, PYTHON, STEP, Floats, Ints
from strobe.traces.operators import starters
from strobe.traces.rank import RankTrace, nested

MOST = 1500  # boxes of a graph; the smallest go first
LONGEST = 120  # characters of a name

Box = tuple[int, float, float, int]  # depth, start, length, number of the name


@dataclass
class Graph:
    """Boxes below each other; ``lanes`` begin at these depths. Microseconds; a merged one has no order in time."""

    title: str
    total: float
    boxes: list[Box] = field(default_factory=list)
    lanes: list[tuple[int, str]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    left_out: int = 0

    def add(self, depth: int, start: float, length: float, name: str) -> None:
        """Add a box."""
        self.boxes.append((depth, start, length, self.names.setdefault(name[:LONGEST], len(self.names))))

    def cut(self) -> "Graph":
        """Only the largest boxes."""
        kept = sorted(sorted(self.boxes, key=lambda box: -box[2])[:MOST])
        self.boxes, self.left_out = kept, len(self.boxes) - len(kept)
        return self


def merged(rank: RankTrace) -> list[Graph]:
    """Calls with the same callers as one box, as long as they are together: on the host, then of what they started."""
    at = rank.columns
    places, parent = _stacked(rank)
    order = places[np.lexsort((-at.length[places], at.start[places], at.track[places]))]
    nodes: dict[tuple[int, int], int] = {}
    node, above, named = np.full(len(at.start), -1, np.int64), [-1], [-1]
    node_of, kinds, names = {-1: 0}, at.kind.tolist(), at.name.tolist()
    for place, up in zip(order.tolist(), parent[order].tolist(), strict=True):
        at_node = node_of.get(up, 0)
        if kinds[place] != STEP:
            key = (at_node, names[place])
            if key not in nodes:
                nodes[key] = len(above)
                above.append(at_node)
                named.append(names[place])
            at_node = node[place] = nodes[key]
        node_of[place] = at_node
    count = len(above)
    known = node[order] >= 0
    host = np.bincount(node[order][known], at.length[order][known], count).astype(float)
    found_graphs = [_laid_out("On the host", host, above, named, at.names.texts)]
    if rank.device is not None:
        by = starters(rank)
        work = at.of(*ON_DEVICE)
        under = np.where(by[work] >= 0, node[by[work]], 0)
        device = np.bincount(np.maximum(under, 0), at.length[work], count).astype(float)
        for one in range(count - 1, 0, -1):
            device[above[one]] += device[one]
        found_graphs.append(_laid_out("On the device, by what started it", device, above, named, at.names.texts))
    return found_graphs


def _laid_out(title: str, lengths: Floats, above: list[int], named: list[int], texts: list[str]) -> Graph:
    below: dict[int, list[int]] = defaultdict(list)
    for one in range(1, len(above)):
        if lengths[one] > 0:
            below[above[one]].append(one)
    graph = Graph(title, float(sum(lengths[one] for one in below[0])))
    waiting = [(0, 0.0, -1)]
    while waiting:
        one, start, depth = waiting.pop()
        if one:
            graph.add(depth, start, float(lengths[one]), texts[named[one]])
        for child in sorted(below[one], key=lambda child: -lengths[child]):
            if lengths[child] * 5000 > graph.total:
                waiting.append((child, start, depth + 1))
                start += float(lengths[child])
            else:
                graph.left_out += 1
    return graph.cut()


def in_time(rank: RankTrace, place: int, title: str) -> Graph:
    """One step: a lane for each thread and stream with something in it."""
    at, (_, starts, ends) = rank.columns, rank.windows
    start, end = float(starts[place]), float(ends[place])
    graph, depth = Graph(title, end - start), 0
    host, parent = _stacked(rank)
    for lane, chosen in (("thread", host), ("stream", at.of(*ON_DEVICE, LOADER))):
        inside = chosen[(at.start[chosen] < end) & (at.end[chosen] > start) & (at.kind[chosen] != STEP)]
        for track in sorted(np.unique(at.track[inside]).tolist(), key=lambda one: one != rank.main):
            name = "training thread" if track == rank.main else f"{lane} {at.tracks[track][1]}"
            graph.lanes.append((depth, name))
            deepest, levels = 0, dict[int, int]()
            for event in inside[at.track[inside] == track].tolist():
                level = levels[event] = levels.get(int(parent[event]), -1) + 1
                deepest = max(deepest, level)
                begin, until = max(start, float(at.start[event])), min(end, float(at.end[event]))
                graph.add(depth + level, begin - start, until - begin, at.names.texts[at.name[event]])
            depth += deepest + 1
    return graph.cut()


def _stacked(rank: RankTrace) -> tuple[Ints, Ints]:
    """The host's ranges with Python's frames, where they were recorded, and the range around each; in time order."""
    at = rank.columns
    if not (at.kind == PYTHON).any():
        places = at.of(*ON_HOST)
        return places, rank.nest[0]
    places = at.of(OPERATOR, CALL, ANNOTATION, STEP, PYTHON)
    return places, nested(at, places)[0]
