"""Operations of a step that belong together: attention, large tensors in between, products of matrices.

Of products those with zeros, and those that another order would make cheaper: thin ones, or before one of few columns.
Copies of earlier copies, and for writes into parts of a tensor. And those of a loop that could be one, because its
rounds need nothing of each other.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from .calls import PICKING, PRODUCTS, Operation
from .frames import Line

HUGE = 2_000_000  # numbers: more than caches hold
FAR_FEWER = 8  # times
POSITIONS, WIDTH = 64, 16  # of attention, at least; with fewer, or narrower heads, one operation is often no faster
THIN = 8  # a product of thin matrices has at least so many times the numbers of its larger factor
FEWER = 2  # a product comes too early if the next one has at least so many times fewer columns
ROUNDS, ROUNDS_OF_SHAPES = 4, 8  # at least; more where shapes differ, as a few layers' do
FEW_WRITES = 4  # into parts of a tensor, at least
MOSTLY_COPIED = 0.5  # of a copy, at least
KEPT = 64_000_000  # bytes made in rounds that have a backward pass each, at most: more is worth the time of a loop
_WEIGHING = {"mul", "div", "add", "sub", "masked_fill", "where", "clone", "_to_copy", "copy_"}  # before a softmax
_COPYING = {"cat", "stack", "roll", "clone"}
_KEEPING = {"add", "sub", "mul", "div", "neg", "clone", "_to_copy"}  # after which the order may still be another one

_Users = Mapping[Operation, list[Operation]]


def with_zeros(operations: Sequence[Operation], is_sparse: Callable[[Operation], bool]) -> set[Operation]:
    """Products with zeros, and what only makes their large factor."""
    readers = _readers(operations)
    numbers: dict[Operation, int] = {}  # with how many numbers that factor has
    for one in reversed(operations):
        if is_sparse(one):
            numbers[one] = math.prod(one.factor)
        elif readers[one] and all(numbers.get(reader) == one.numbers for reader in readers[one]):
            numbers[one] = one.numbers
    return set(numbers)


def attention_of(operations: Sequence[Operation], needed: Mapping[Operation, float]) -> set[Operation]:
    """What lies between the two products of attention over many positions: scaling, masking, softmax, copies.

    Not where weights are added that learn, or numbers are left out at random, which no fused operation does on a CPU;
    nor where something else needs the softmax.
    """
    readers = _readers(one for one in operations if not one.backward and needed[one])
    learned, fused = {one.forward for one in operations}, set[Operation]()
    for softmax in operations:
        if softmax.name not in ("_softmax", "_safe_softmax") or softmax.backward or softmax.ends:
            continue
        if softmax.size.shape[-1] < POSITIONS or not any(source.part == "rows" for source in softmax.sources):
            continue
        between, one = {softmax}, softmax
        while one.name not in PRODUCTS:
            scores = [source.operation for source in one.sources if source.operation.size.makes == softmax.size.makes]
            others = {source.operation for source in one.sources}.difference(scores) & learned
            if (
                len(scores) != 1
                or others
                or one.autograd.of_weights
                or not (one is softmax or one.name.removesuffix("_") in _WEIGHING)
            ):
                break
            between.add(one)
            one = scores[0]
        using = readers[softmax]
        while len(using) == 1 and using[0].name in ("clone", "_to_copy"):
            between |= {*using}
            using = readers[using[0]]
        wide = one.size.reads * softmax.size.shape[-1] >= WIDTH * one.size.makes
        computed = one.name in PRODUCTS and len(one.sources) > 1 and not one.autograd.of_weights
        if computed and wide and using and all(each.name in PRODUCTS for each in using):
            fused |= between
    return fused


def broadcast_of(operations: Iterable[Operation]) -> set[Operation]:
    """Those that make a large tensor of far smaller ones, go through it number by number, and reduce it again."""
    chains, reduced = dict[Operation, set[Operation]](), set[Operation]()
    for one in operations:
        before = [chains[source.operation] for source in one.sources if source.operation in chains]
        reduces = FAR_FEWER * one.size.makes <= one.size.reads and one.name not in PRODUCTS | PICKING
        begins, goes_on = FAR_FEWER * one.size.reads <= one.size.makes, 0 < one.size.full <= len(before)
        if before and reduces:
            reduced |= {one}.union(*before)
        elif one.pointwise and one.size.makes >= HUGE and (begins or goes_on):
            chains[one] = {one}.union(*before)
    return reduced


def copied_again(operations: Iterable[Operation]) -> dict[Operation, float]:
    """Copies, at a line, of what that line had copied before, and the share of each that is: ``x = cat([x[1:], new])``.

    Not where gradients pass through what something else reads meanwhile, which must stay as it was.
    """
    readers, again = _readers(operations := [*operations]), dict[Operation, float]()

    def is_earlier(before: Operation, one: Operation) -> bool:
        copies = before.name in _COPYING | {"copy_"} and before.lines == one.lines
        kept = not one.autograd.unseen and any(each.name not in _COPYING for each in readers[before])
        return copies and not kept and (one.name != "clone" or before.step < one.step)

    for one in operations:
        ours = [source.operation for source in one.sources if source.operation.lines == one.lines]
        if one.name == "copy_" and not again.keys().isdisjoint(ours):
            again[one] = 1.0
        elif one.name in _COPYING and (before := [each.size.makes for each in one.after if is_earlier(each, one)]):
            share = max(before) / max(1, one.size.makes)
            again |= {one: min(1.0, share)} if share >= MOSTLY_COPIED else {}
    return again


def avoidable(operations: Sequence[Operation]) -> dict[Operation, float]:
    """Of a step's operations, the share that another order saves.

    The gradients of an operation save as much as itself.
    """
    readers = _readers(one for one in operations if not one.backward)
    gradients = defaultdict[Operation, list[Operation]](list)
    for one in operations:
        if one.forward is not None:
            gradients[one.forward].append(one)
    return _early(operations, readers, gradients) | _whole(operations, readers, gradients)


def _early(operations: Sequence[Operation], readers: _Users, gradients: _Users) -> dict[Operation, float]:
    """Products that come before one with few columns: ``(A @ (A @ x)) @ W`` is ``A @ (A @ (x @ W))``.

    Not where ``x`` has more rows than the result, as in pooling: then ``x @ W`` costs more. Layers in a row are left
    alone, too: what learns is there by design.
    """
    saved = dict[Operation, float]()
    for narrow in (one for one in operations if not one.backward):
        one = narrow
        while made := next((source.operation for source in one.sources if _is_early(source.operation, narrow)), None):
            if len(readers[made]) > 1 or made.ends or made.lasts:
                break
            share = 1 - narrow.size.makes / made.size.makes
            saved |= dict.fromkeys([made, *gradients[made]], share)
            one = made
    return saved


def _is_early(made: Operation, narrow: Operation) -> bool:
    """Whether an operation is a product, by nothing that learns, with as many rows as the narrow one, and no fewer."""
    if not {made.name, narrow.name} <= PRODUCTS or made.backward or made.autograd.of_weights:
        return False
    shape, result = made.size.shape, narrow.size.shape
    narrower = len(shape) == len(result) == 2 and shape[0] == result[0] and shape[1] >= FEWER * result[1]
    return narrower and made.size.inner <= shape[0] and not any(_learns(each.operation) for each in made.sources)


def _learns(one: Operation) -> bool:
    """Whether an operation only changes the form of weights, such as their type or their length."""
    made = [source.operation for source in one.sources if source.operation.phase != "optimizer"]
    return one.name not in PRODUCTS and (all(map(_learns, made)) if made else one.autograd.of_weights)


def _whole(operations: Sequence[Operation], readers: _Users, gradients: _Users) -> dict[Operation, float]:
    """Products of thin matrices that are made whole, only to be multiplied by: ``x @ (A @ B)`` is ``(x @ A) @ B``.

    These are the ones that make the product, scale it or add to it, and their gradients. If what is added does not
    learn, the gradient of the sum is saved, too; if nothing is added, also what multiplies by the product.
    """
    saved = dict[Operation, float]()
    for made in operations:
        if made.name not in PRODUCTS or made.backward or made.size.makes < THIN * made.size.reads:
            continue
        chain, added = [made], list[Operation]()
        while len(using := readers[chain[-1]]) == 1 and _keeps(using[0], made):
            chain += using
            added += [one for one in using if one.size.full > 1]
        if not using or any(one.name not in PRODUCTS for one in using) or any(one.ends or one.lasts for one in chain):
            continue
        left = 2 * made.size.reads / made.size.makes  # of a product with the whole, which those with its factors take
        for one in chain:
            saved |= dict.fromkeys([one, *gradients[one]], 1.0)
        for product in using:
            whole = [one for one in gradients[product] if one.name in PRODUCTS and one.size.makes == made.size.makes]
            if not added:
                saved |= dict.fromkeys([product, *gradients[product]], 1 - left)
            elif not any(one.autograd.of_weights for one in added):
                saved |= dict.fromkeys(whole, 1 - left)
    return saved


def _keeps(one: Operation, made: Operation) -> bool:
    """Whether an operation only scales such a product, or adds to it, so that it can be multiplied factor by factor."""
    name = one.name.removesuffix("_")
    scales = name not in ("mul", "div") or one.size.full == 1
    return name in _KEEPING and one.size.makes == made.size.makes and scales and not one.backward


def together(operations: Sequence[Operation]) -> dict[Operation, int]:
    """Of a step's operations in loops: how many could be computed at once, with each of them.

    They are the same operation, called by the same instruction, and none needs what another computes. Gradients go with
    the operations that they are of; those that several backward passes compute of one operation can be one, too.
    Parts of a batch that have a backward pass each save memory, so they are left out where that is much.
    """
    many = dict[Operation, int]()
    for group in _rounds_of(operations):
        alike = len({(one.size.reads, *one.size.shape) for one in group}) == 1
        if len(group) >= (ROUNDS if alike else ROUNDS_OF_SHAPES):
            many |= dict.fromkeys(group, len(group))
    return {one: many[one.forward] for one in operations if one.forward in many} | many


def _rounds_of(operations: Sequence[Operation]) -> Iterable[list[Operation]]:
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


def _readers(operations: Iterable[Operation]) -> defaultdict[Operation, list[Operation]]:
    """Those that read what an operation made."""
    readers = defaultdict[Operation, list[Operation]](list)
    for one in operations:
        for source in one.sources:
            readers[source.operation].append(one)
    return readers


def sliced_by(operations: Iterable[Operation]) -> set[Operation]:
    """Copies of a whole tensor's gradient, ``FEW_WRITES`` or more of one line's: each of its writes into a part."""
    copies = defaultdict[tuple[Line, ...], list[Operation]](list)
    for one in operations:
        if one.autograd.slices and one.name == "copy_":
            copies[one.lines].append(one)
    found = set[Operation]()
    for copied in copies.values():
        size = max(one.size.bytes for one in copied)  # others are of the parts
        whole = [one for one in copied if one.size.bytes == size]
        found.update(whole if len(whole) >= FEW_WRITES else [])
    return found
