"""Operations of a step that could be one: those of a loop whose rounds need nothing of each other."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from .dataflow import Operation

ROUNDS = 4  # at least


def rounds(operations: Sequence[Operation]) -> dict[Operation, int]:
    """With how many of a step's operations each could be one, for those of ``ROUNDS`` and more.

    These are the same operation, called from the same lines, and none needs what another computes. Each of a backward
    pass is as the one whose gradients it computes.
    """
    found = _groups(operations)
    sizes = Counter(found.values())
    many = {one: size for one, group in found.items() if (size := sizes[group]) >= ROUNDS}
    return many | {one: many[one.forward] for one in operations if one.forward in many}


def _groups(operations: Sequence[Operation]) -> dict[Operation, tuple[object, int]]:
    """Of those outside of a backward pass: what and where they are, and how many of these each needs in turn."""
    places = {one: place for place, one in enumerate(operations)}
    needed, told = list[int](), [0]  # sets of places, as bits; told: of what Python may have read by then
    alike, found = defaultdict[object, int](int), dict[Operation, tuple[object, int]]()
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
            found[one] = what, 1 + found[operations[latest]][1] if latest >= 0 else 0
            alike[what] |= 1 << place
    return found
