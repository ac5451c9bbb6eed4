"""Operations of a step that could be one: those of a loop whose rounds need nothing of each other."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from .dataflow import Operation

ROUNDS, ROUNDS_OF_SHAPES = 4, 8  # at least; where shapes differ, which fewer layers' do that are not alike


def rounds(operations: Sequence[Operation]) -> dict[Operation, int]:
    """With how many of a step's operations each could be one, for those of a loop of enough rounds.

    These are the same operation, called from the same lines, and none needs what another computes. Each of a backward
    pass is as the one whose gradients it computes.
    """
    many = dict[Operation, int]()
    for group in _groups(operations):
        alike = len({(one.reads, *one.shape) for one in group}) == 1
        if len(group) >= (ROUNDS if alike else ROUNDS_OF_SHAPES):
            many |= dict.fromkeys(group, len(group))
    return many | {one: many[one.forward] for one in operations if one.forward in many}


def _groups(operations: Sequence[Operation]) -> Iterable[list[Operation]]:
    """The same operations, of the same lines, that need equally many of these, one after another."""
    places = {one: place for place, one in enumerate(operations)}
    needed, told = list[int](), [0]  # sets of places, as bits; told: of what Python may have read by then
    depth, alike = dict[Operation, int](), defaultdict[object, int](int)
    found = defaultdict[object, list[Operation]](list)
    for place, one in enumerate(operations):
        needs = told[one.since]
        for other in one.after & places.keys():
            needs |= needed[places[other]] | 1 << places[other]
        needed.append(needs)
        read = one.ends or one.unseen or not one.writes
        told.append(told[-1] | needs | 1 << place if read else told[-1])
        if not one.backward and not one.of_torch:
            what = one.name, one.lines
            latest = (needs & alike[what]).bit_length() - 1
            depth[one] = 1 + depth[operations[latest]] if latest >= 0 else 0
            found[what, depth[one]].append(one)
            alike[what] |= 1 << place
    return found.values()
