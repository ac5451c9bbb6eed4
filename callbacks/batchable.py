"""Operations of a step that could be one: those of a loop whose rounds need nothing of each other."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from .calls import Operation

ROUNDS, ROUNDS_OF_SHAPES = 4, 8  # at least; more where shapes differ, as a few layers' do
KEPT = 64_000_000  # bytes made in rounds that have a backward pass each, at most: more is worth the time of a loop


def together(operations: Sequence[Operation]) -> dict[Operation, int]:
    """Of a step's operations in loops: how many could be computed at once, with each of them.

    They are the same operation, called by the same instruction, and none needs what another computes. Gradients go with
    the operations that they are of; those that several backward passes compute of one operation can be one, too.
    Parts of a batch that have a backward pass each save memory, so they are left out where that is much.
    """
    many = dict[Operation, int]()
    for group in _groups(operations):
        alike = len({(one.size.reads, *one.size.shape) for one in group}) == 1
        if len(group) >= (ROUNDS if alike else ROUNDS_OF_SHAPES):
            many |= dict.fromkeys(group, len(group))
    return {one: many[one.forward] for one in operations if one.forward in many} | many


def _groups(operations: Sequence[Operation]) -> Iterable[list[Operation]]:
    """The same operations that need equally many of these, one after another."""
    places = {one: place for place, one in enumerate(operations)}
    needs_of, visible = list[int](), [0]  # sets of places, as bits; visible: what Python may know by then
    steering, groups_of = 0, defaultdict[object, list[list[Operation]]](list)  # by how many they need in turn
    members = defaultdict[object, list[int]](list)  # these, as sets of places
    passes, before = {-1}, dict[Operation, int]()  # backward passes so far; how many before each operation
    made = defaultdict[int, int](int)  # bytes of what is computed until the next one
    alike = Counter[object]()  # of each pass, the same operations so far that compute gradients of one
    for place, one in enumerate(operations):
        needs = visible[one.since] | steering
        for other in one.after & places.keys():
            needs |= needs_of[places[other]] | 1 << places[other]
        needs_of.append(needs)
        known = one.ends or one.autograd.unseen or not one.writes
        visible.append(visible[-1] | needs | 1 << place if known else visible[-1])
        steering |= needs | 1 << place if one.steers else 0
        task = one.autograd.graph_task
        passes |= {task}
        if one.site.of_torch or (one.backward and one.forward is None):
            continue
        before[one] = len(passes)
        made[len(passes)] += one.size.bytes
        alike[task, one.forward, one.name] += one.backward
        key = one.name, one.lines, one.site.instructions, one.forward, alike[task, one.forward, one.name]
        sets, groups = members[key], groups_of[key]
        deep = next((depth for depth in range(len(sets), 0, -1) if needs & sets[depth - 1]), 0)
        if deep == len(sets):
            sets.append(0)
            groups.append([])
        sets[deep] |= 1 << place
        groups[deep].append(one)
    for group in (group for groups in groups_of.values() for group in groups):
        parts = defaultdict[int, list[Operation]](list)
        for one in group:
            parts[before[one]].append(one)
        size = sum(one.size.bytes for one in group) if group[0].backward else sum(made[part] for part in parts)
        if size <= KEPT:
            yield group
        else:
            yield from parts.values()
