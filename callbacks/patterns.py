"""Operations of a step that belong together: parts of an attention, large tensors in between, products with zeros."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from .calls import PICKING, PRODUCTS, Operation

HUGE = 2_000_000  # numbers: more than caches hold
FAR_FEWER = 8  # times
POSITIONS, WIDTH = 64, 16  # of attention, at least; with fewer, or narrower heads, one operation is often no faster
_WEIGHING = {"mul", "div", "add", "sub", "masked_fill", "where", "clone", "_to_copy", "copy_"}  # before a softmax


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


def _readers(operations: Iterable[Operation]) -> defaultdict[Operation, list[Operation]]:
    """Those that read what an operation made."""
    readers = defaultdict[Operation, list[Operation]](list)
    for one in operations:
        for source in one.sources:
            readers[source.operation].append(one)
    return readers
