"""What of a step's operations is for nothing, by how values flow between them."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from .batchable import together
from .calls import PICKING, PRODUCTS, SOFTMAX, Operation
from .chains import avoidable
from .columns import PHASES
from .dataflow import STEPS, Dataflow
from .frames import Line, located
from .variants import VARIANTS

KINDS = (
    *("constant", "repeated", "unused", "unused_backward", "sparse", "alike", "order", "broadcast", "loop"),
    *("attention", *VARIANTS),
)
MOSTLY = 0.98  # of a factor are zeros: a ReLU and dropout leave fewer
ALIKE = 0.8  # of a factor's rows equal an earlier one: each is computed five times
EACH = 5e-9  # seconds that a number takes, but in products: the rest is fixed
SHARED = 32_768  # numbers, from which on torch divides an operation among its threads
ELSEWHERE = ("data_wait", "optimizer", "callbacks")  # phases whose loops are others' causes
HUGE = 2_000_000  # numbers: more than caches hold
FAR_FEWER = 8  # times
POSITIONS, WIDTH = 64, 16  # of attention, at least; with fewer, or narrower heads, one operation is often no faster
BY_PARTS = PRODUCTS | PICKING | SOFTMAX | {"convolution", "native_layer_norm"}  # whose part costs a part; not sort
SELECTED, SORTING = 0.25, 0.6  # of what is sorted, at most: then at least so much of a sort is saved by torch.topk
QUICKEST = 0.1  # of a step's operations: what these take, one takes however few numbers it has
LEAST = 0.01  # of a phase: smaller shares are left out
NEARLY = 0.9  # of what a function computes: it counts as computing nothing else
TOGETHER = 0.8  # of the wasted time: the innermost function that holds this much is named

ADDING = {"add", "add_"}  # gradients
_WEIGHING = {"mul", "div", "add", "sub", "masked_fill", "where", "clone", "_to_copy", "copy_"}  # before a softmax
_FILLING = {"empty", "zeros", "zero_", "_foreach_zero_", "ones", "full"}  # and new_zeros or zeros_like


def wasted(flow: Dataflow) -> dict[str, dict[str, Any] | None]:
    """What of a step is for nothing, by kind: a dictionary, or None where there is nothing of that kind.

    - ``constant``: what the step before computed, too, with the ``functions`` that compute nothing else.
    - ``repeated``: what the same step computed before, ``calls`` times in all, and the backward pass of that.
    - ``unused``: results, or parts of them, that nothing uses, and the backward pass of these.
    - ``unused_backward``: what ends in gradients that nothing uses, such as another network's.
    - ``sparse``: products with, and decompositions of, a matrix of mostly zeros, with the ``share`` of these, and its
      ``shape``.
    - ``alike``: products, and convolutions, with rows most of which equal earlier ones, with the ``share`` of these.
    - ``broadcast``: large tensors, made of far smaller ones and reduced again, of this ``shape`` and so many ``bytes``.
    - ``order``: products that another order makes cheaper, the largest of this ``shape``.
    - ``loop``: what rounds of a loop take, ``rounds`` of them, that could be computed at once.
    - ``attention``: scaling, masking and softmax between two products, of this ``shape``, that one operation computes.
    - ``denormal``, ``dtype``, ``length``: what operations take longer than their ``variants``, with what these tell; of
      ``dtype`` also the share of the operations' time that was ``tried`` in single precision.

    Each has, by the names of phases, the share of the phase's time; and the ``file``, ``line`` and ``function`` where
    most of it is, None outside of the user's own code.
    """
    if len(flow.spent) < STEPS:
        return dict.fromkeys(KINDS)
    first, last = ([one for one in flow.operations if one.step == step] for step in (0, STEPS - 1))
    needed, constant, same = needed_of(flow.operations, updated=flow.updated), _constant(first, last), _same(last)

    learned = {one.forward for one in last}

    def again(one: Operation) -> Operation | None:
        """What was computed before: this operation, or the one whose gradients it computes, or adds up.

        The first of its like must have had gradients computed, too.
        """
        if (gradient := added(one)) is not one:
            return again(gradient)
        twin = next((each for each in (one, one.forward) if each in same), None)
        if twin is None or twin in constant or (twin is not one and same[twin] not in learned):
            return None
        return twin

    def is_sparse(one: Operation) -> bool:
        """Whether it computes with zeros, and not because nothing uses most of its results."""
        forward = one.forward or one
        return _has_zeros(one) and (_has_zeros(forward) or needed[forward] > MOSTLY)

    def unused(one: Operation) -> float:
        computed = one.forward if one.backward else one
        if computed is None or not _computes(computed) or is_sparse(one):
            return 0.0
        if one.name == "sort" and 0 < needed[one] <= SELECTED:
            return SORTING
        return 1 - needed[computed] if computed.pointwise or computed.name in BY_PARTS else float(not needed[computed])

    sparse, broadcast = with_zeros(last, is_sparse), _broadcast(last)
    attention, whole = attention_of(first, needed), avoidable(last)
    least = sorted(one.seconds for one in last)[int(QUICKEST * len(last))] if last else 0.0
    looped = {  # where what is computed again is mended
        one: rounds
        for one, rounds in together(last).items()
        if one.phase not in ELSEWHERE
        and _computes(one, backward=True)
        and not again(one)
        and (one.forward or one) not in constant
    }

    def saved(one: Operation) -> float:
        return _saved(one, looped[one], least) if one in looped else 0.0

    def loop_of(one: Operation) -> Sequence[Line]:
        return loop_of(one.forward) if one.forward is not None and one.forward in looped else one.site.lines

    kinds = {
        "constant": _waste(flow, last, lambda one: float(one in constant)),
        "repeated": _waste(flow, last, lambda one: float(again(one) is not None), lambda one: _apart(again(one), same)),
        "unused": _waste(flow, first, unused),
        "unused_backward": _waste(flow, first, lambda one: float(one.backward and not needed[one])),
        "sparse": _waste(flow, last, lambda one: float(one in sparse)),
        "alike": _waste(flow, last, lambda one: 0.0 if one in sparse else _alike(one.forward or one)),
        "broadcast": _waste(flow, last, lambda one: float((one.forward or one) in broadcast)),
        "order": _waste(flow, last, lambda one: whole.get(one, 0.0)),
        "loop": _waste(flow, last, saved, loop_of),
        "attention": _waste(flow, first, lambda one: float((one.forward or one) in attention)),
        **{kind: _slow(flow, last, kind) for kind in VARIANTS},
    }
    if kind := kinds["constant"]:
        kind["functions"] = _nothing_but(constant, last)
    if kind := kinds["repeated"]:
        repeats = defaultdict[int, list[float]](list)
        for one in filter(again, last):
            repeats[one.signature].append(one.seconds)
        kind["calls"] = 1 + len(max(repeats.values(), key=sum))
    if kind := kinds["sparse"]:
        longest = max(filter(is_sparse, last), key=lambda one: one.seconds)
        kind |= {"share": longest.zeros, "shape": longest.factor}
    if kind := kinds["alike"]:
        kind["share"] = max(last, key=lambda one: 0.0 if one in sparse else one.seconds * _alike(one)).alike
    if kind := kinds["broadcast"]:
        largest = max(broadcast, key=lambda one: one.size.bytes)
        kind |= {"shape": largest.size.shape, "bytes": largest.size.bytes}
    if kind := kinds["order"]:
        kind["shape"] = max(whole, key=lambda one: one.size.makes).size.shape
    if kind := kinds["attention"]:
        kind["shape"] = max(attention, key=lambda one: one.size.makes).size.shape
    if tried := sum(one.seconds for one in last if "dtype" in one.slower):
        kinds["dtype"] = (kinds["dtype"] or {}) | {"tried": tried / sum(one.seconds for one in last)}
    if kind := kinds["loop"]:
        weights = defaultdict[int, float](float)  # of loops within each other
        for one, rounds in looped.items():
            weights[rounds] += one.seconds * saved(one)
        kind["rounds"] = max(weights, key=lambda rounds: weights[rounds])
    return kinds


def needed_of(operations: Sequence[Operation], *, updated: bool = True) -> dict[Operation, float]:
    """The share of each operation's results that something uses.

    Operations that read a part of them are taken to read different ones; but a backward pass reads what the forward
    pass did. Gradients that stay are used if something reads them before they do. Where no update was seen, all are:
    a script may read them unseen.
    """
    read = {source.operation for one in operations for source in one.sources}
    read_later = {source.operation for one in operations if not one.backward for source in one.sources}

    def is_used(one: Operation) -> bool:
        kept = one.lasts and not (one.backward and updated and one not in read_later)
        unread = (one.autograd.unseen or (one.backward and not updated)) and one not in read
        return kept or one.ends or not one.writes or unread

    rows = {one: float(is_used(one)) for one in operations}
    numbers, backward = rows.copy(), dict.fromkeys(operations, 0.0)  # rows: those with any number that is used
    for one in reversed(operations):
        rows[one], numbers[one] = max(rows[one], backward[one]), max(numbers[one], backward[one])
        for source in one.sources if numbers[one] else ():
            made = source.operation
            of_numbers = source.share * {"numbers": numbers[one], "rows": rows[one], "all": 1.0}[source.part]
            of_rows = source.share * (1.0 if source.part == "all" else rows[one]) if source.rows else 1.0
            if one.backward and not made.backward:
                backward[made] = max(backward[made], of_rows)
            else:
                numbers[made], rows[made] = min(1.0, numbers[made] + of_numbers), min(1.0, rows[made] + of_rows)
    return numbers


def _computes(operation: Operation, *, backward: bool = False) -> bool:
    """Whether it does more than to reserve or fill memory; outside of a backward pass, or also in one."""
    filling = operation.name.removeprefix("new_").removesuffix("_like") in _FILLING
    return operation.writes and (backward or not operation.backward) and not filling


def _constant(before: Iterable[Operation], now: Iterable[Operation]) -> set[Operation]:
    """What a step computes, and the step before did."""
    known = {one.signature for one in before if _computes(one)}
    return {one for one in now if _computes(one) and one.signature in known}


def _same(operations: Iterable[Operation]) -> dict[Operation, Operation]:
    """Of a step's operations that compute again what one before did: that one; of a backward pass, another one's."""
    firsts: dict[tuple[int, bool], Operation] = {}
    computing = [one for one in operations if _computes(one, backward=True)]
    first_of = {one: firsts.setdefault((one.signature, one.backward), one) for one in computing}
    return {
        one: first
        for one, first in first_of.items()
        if (one.autograd.graph_task != first.autograd.graph_task if one.backward else one is not first)
    }


def _saved(one: Operation, rounds: int, least: float) -> float:
    """The share of an operation's seconds that is saved where so many are one; any takes the ``least`` seconds."""
    computing = one.seconds if one.name in PRODUCTS | {"convolution"} else one.numbers * EACH
    fixed = max(least, one.seconds - computing) / max(one.seconds, least)
    threads = torch.get_num_threads() if one.numbers < SHARED <= one.numbers * rounds else 1
    return fixed * (1 - 1 / rounds) + (1 - fixed) * (1 - 1 / threads)


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


def _readers(operations: Iterable[Operation]) -> defaultdict[Operation, list[Operation]]:
    """Those that read what an operation made."""
    readers = defaultdict[Operation, list[Operation]](list)
    for one in operations:
        for source in one.sources:
            readers[source.operation].append(one)
    return readers


def _broadcast(operations: Iterable[Operation]) -> set[Operation]:
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


def _alike(operation: Operation) -> float:
    """The share of rows that equal an earlier one; 0 where these are not most."""
    return operation.alike if operation.alike >= ALIKE else 0.0


def _has_zeros(operation: Operation) -> bool:
    """Whether nearly all numbers of a matrix are zeros; all are in weights that begin so."""
    return MOSTLY <= operation.zeros < 1


def _waste(
    flow: Dataflow,
    operations: Iterable[Operation],
    share_of: Callable[[Operation], float],
    lines_of: Callable[[Operation], Sequence[Line]] = lambda one: one.lines,
) -> dict[str, Any] | None:
    """What a share of each of these operations takes of their phases, and where most of it is."""
    lost, spent, places = defaultdict[str, float](float), {}, []
    for one in operations:
        if one.phase in PHASES and (seconds := one.seconds * share_of(one)):
            lost[one.phase] += seconds
            spent[one.phase] = flow.spent[one.step].get(one.phase, 0.0)
            places.append((seconds, lines_of(one)))
    longer = {phase: seconds for phase, seconds in lost.items() if seconds > 0}
    net = sum(lost.values()) / sum(longer.values()) if longer else 0.0  # a variant may be slower in other phases
    shares = {phase: net * seconds / max(seconds, spent[phase]) for phase, seconds in longer.items()}
    shares = {phase: share for phase, share in shares.items() if share >= LEAST}
    places = [(seconds, lines) for seconds, lines in places if seconds > 0]
    return {**shares, **located(_where(places))} if shares else None


def _slow(flow: Dataflow, operations: Iterable[Operation], variant: str) -> dict[str, Any] | None:
    """What operations take longer than this variant of them; of several types, with the one that costs most."""
    groups = defaultdict[str, list[Operation]](list)
    for one in operations:
        if variant in one.slower:
            groups[one.slower[variant].details.get("dtype", "")].append(one)

    def lost(one: Operation) -> float:
        return one.slower[variant].seconds

    most = max(groups.values(), key=lambda group: sum(map(lost, group)), default=[])
    waste = _waste(flow, most, lambda one: min(1.0, lost(one) / max(one.seconds, 1e-9)))
    return waste and {**waste, **max(most, key=lost).slower[variant].details}


def added(operation: Operation) -> Operation:
    """Of what a backward pass adds up, the last gradient of a known operation; else the operation itself."""
    if operation.backward and operation.forward is None and operation.name in ADDING:
        made = [source.operation for source in operation.sources if source.operation.forward is not None]
        return made[-1] if made else operation
    return operation


def _apart(operation: Operation | None, same: Mapping[Operation, Operation]) -> Sequence[Line]:
    """The lines of an operation that computes again what another did, down to the first that is not the other's."""
    if operation is None:
        return ()
    own, others = operation.lines, same[operation].lines
    if operation.backward:  # which the user's lines do not call, but its pass
        own, others = operation.site.lines, same[operation].site.lines
    pairs = zip(own, others, strict=False)
    alike = next((depth for depth, (mine, theirs) in enumerate(pairs) if mine != theirs), len(own))
    return own[: alike + 1]


def _nothing_but(constant: Collection[Operation], operations: Iterable[Operation]) -> list[dict[str, str]]:
    """The ``file`` and ``function`` of those of the user's functions that compute hardly anything but this."""
    whole, part = defaultdict[tuple[str, str], float](float), defaultdict[tuple[str, str], float](float)
    for one in operations:
        for file, _, function in one.lines[-1:] if not one.backward else ():
            whole[file, function] += one.seconds
            part[file, function] += one.seconds * (one in constant)
    places = [place for place in whole if part[place] >= NEARLY * whole[place]]
    return [{"file": file, "function": function} for file, function in places]


def _where(places: Sequence[tuple[float, Sequence[Line]]]) -> Line | None:
    """The line with most of these seconds, in the innermost function through which nearly all of them lead."""
    least, busiest = TOGETHER * sum(seconds for seconds, _ in places), None
    for depth in range(max(len(lines) for _, lines in places)):
        lines, functions = defaultdict[Line, float](float), defaultdict[tuple[str, str], float](float)
        for seconds, path in places:
            for line in path[depth : depth + 1]:
                lines[line] += seconds
                functions[line[0], line[2]] += seconds
        if not functions:
            break
        most = max(functions, key=lambda one: functions[one])
        if busiest is not None and functions[most] < least:
            break
        places = [(seconds, path) for seconds, path in places if depth < len(path) and path[depth][::2] == most]
        busiest = max((line for line in lines if line[::2] == most), key=lambda line: lines[line])
    return busiest
