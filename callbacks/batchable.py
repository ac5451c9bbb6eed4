"""Operations of a step that could be one: those of a loop whose rounds need nothing of each other."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from .calls import Operation

ROUNDS, ROUNDS_OF_SHAPES = 4, 8  # at least; more where shapes differ, as a few layers' do


def together(operations: Sequence[Operation]) -> dict[Operation, int]:
    """Of a step's operations in loops: how many could be computed at once, with each of them.

    They are the same operation, called by the same instruction, and none needs what another computes. Gradients go with
    the operations that they are of. Parts of a batch that have a backward pass each are left out: that saves memory.
    """
    many = dict[Operation, int]()
    for group in _groups(operations):
        alike = len({(one.reads, *one.shape) for one in group}) == 1
        if len(group) >= (ROUNDS if alike else ROUNDS_OF_SHAPES):
            many |= dict.fromkeys(group, len(group))
    return many | {one: many[one.forward] for one in operations if one.forward in many}


def _groups(operations: Sequence[Operation]) -> Iterable[list[Operation]]:
    """The same operations that need equally many of these, one after another."""
    places = {one: place for place, one in enumerate(operations)}
    needs_of, told = list[int](), [0]  # sets of places, as bits; told: what Python may know by then
    steering, found = 0, defaultdict[object, list[list[Operation]]](list)  # by how many they need in turn
    members, passes = defaultdict[object, list[int]](list), {-1}  # these, as sets of places; backward passes so far
    for place, one in enumerate(operations):
        needs = told[one.since] | steering
        for other in one.after & places.keys():
            needs |= needs_of[places[other]] | 1 << places[other]
        needs_of.append(needs)
        known = one.ends or one.unseen or not one.writes
        told.append(told[-1] | needs | 1 << place if known else told[-1])
        steering |= needs | 1 << place if one.steers else 0
        passes |= {one.graph_task}
        if one.backward or one.of_torch:
            continue
        key = one.name, one.lines, one.site, len(passes)
        sets, groups = members[key], found[key]
        deep = next((depth for depth in range(len(sets), 0, -1) if needs & sets[depth - 1]), 0)
        if deep == len(sets):
            sets.append(0)
            groups.append([])
        sets[deep] |= 1 << place
        groups[deep].append(one)
    return [group for groups in found.values() for group in groups]
