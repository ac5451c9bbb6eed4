"""What of a step's operations is for nothing, by how values flow between them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from .calls import LOSSES, PICKING, PRODUCTS, SOFTMAX, Operation
from .columns import PHASES
from .dataflow import STEPS, Dataflow
from .frames import Line, located
from .patterns import attention_of, avoidable, broadcast_of, copied_again, sliced_by, together, with_zeros
from .variants import VARIANTS

KINDS = (
    *("constant", "repeated", "unused", "unused_backward", "sparse", "alike", "order", "broadcast", "carried", "loop"),
    *("sliced", "attention", *VARIANTS),
)
MOSTLY = 0.98  # of a factor are zeros: a ReLU and dropout leave fewer
ALIKE = 0.8  # of a factor's rows equal an earlier one: each is computed five times
EACH = 5e-9  # seconds that a number takes, but in products: the rest is fixed
SHARED = 32_768  # numbers, from which on torch divides an operation among its threads
ELSEWHERE = ("data_wait", "optimizer", "callbacks")  # phases whose loops are others' causes
BY_PARTS = PRODUCTS | PICKING | SOFTMAX | {"convolution", "native_layer_norm"}  # whose part costs a part; not sort
SELECTED, SORTING = 0.25, 0.6  # of what is sorted, at most: then at least so much of a sort is saved by torch.topk
QUICKEST = 0.1  # of a step's operations: what these take, one takes however few numbers it has
LEAST = 0.01  # of a phase: smaller shares are left out
NEARLY = 0.9  # of what a function computes: it counts as computing nothing else
TOGETHER = 0.8  # of the wasted time: the innermost function that holds this much is named

ADDING = {"add", "add_"}  # gradients
_MAXIMA = {
    *("max", "min", "amax", "amin", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    *("max_pool2d_with_indices", "max_pool3d_with_indices"),
}
_FUNCTION, _LINE = {"file": 0, "function": 2}, {"file": 0, "line": 1}  # what names them, and its place in a ``Line``
_FILLING = {"empty", "zeros", "zero_", "_foreach_zero_", "ones", "full"}  # and new_zeros or zeros_like


def wasted(flow: Dataflow) -> dict[str, dict[str, Any] | None]:
    """What of a step is for nothing, by kind: a dictionary, or None where there is nothing of that kind.

    Each has, by the names of phases, the share of the phase's time; the ``file``, ``line`` and ``function`` where most
    of it is, None outside of the user's own code; and what the methods of ``_Kinds`` name.
    """
    if len(flow.spent) < STEPS:
        return dict.fromkeys(KINDS)
    kinds = _Kinds(flow)
    return {kind: kinds.slower(kind) if kind in VARIANTS else getattr(kinds, kind)() for kind in KINDS}


class _Kinds:
    """The first and the last of the steps that were followed, and a method for each kind of waste in them."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._first, self._last = ([one for one in flow.operations if one.step == step] for step in (0, STEPS - 1))
        self._later = _later(self._first, self._last)
        self._needed = needed_of(flow.operations, updated=flow.updated)
        self._constant, self._same = _constant(self._first, self._last), _same(self._last)
        self._learned = {one.forward for one in self._last}
        self._sparse = with_zeros(self._last, self._is_sparse)

    def constant(self) -> dict[str, Any] | None:
        """What the step before computed, too, with the ``functions`` that compute nothing else."""
        waste = self._waste(self._last, lambda one: float(one in self._constant))
        return waste and waste | {"functions": _nothing_but(self._constant, self._last, _FUNCTION)}

    def repeated(self) -> dict[str, Any] | None:
        """What the same step computed before, ``calls`` times in all, and the backward pass of that."""
        waste = self._waste(self._last, lambda one: float(self._again(one) is not None), self._apart)
        repeats = defaultdict[int, list[float]](list)
        for one in filter(self._again, self._last):
            repeats[one.signature].append(one.seconds)
        return waste and waste | {"calls": 1 + len(max(repeats.values(), key=sum))}

    def unused(self) -> dict[str, Any] | None:
        """Results, or parts of them, that nothing uses, and the backward pass of these."""
        return self._waste(self._first, self._unused)

    def unused_backward(self) -> dict[str, Any] | None:
        """What ends in gradients that nothing uses, such as another network's."""
        return self._waste(self._first, lambda one: float(one.backward and not self._needed[one]))

    def sparse(self) -> dict[str, Any] | None:
        """Products with, and decompositions of, a matrix of mostly zeros: the ``share`` of these, and its ``shape``."""
        if not (waste := self._waste(self._last, lambda one: float(one in self._sparse))):
            return None
        longest = max(filter(self._is_sparse, self._last), key=lambda one: one.seconds)
        return waste | {"share": longest.zeros, "shape": longest.factor}

    def alike(self) -> dict[str, Any] | None:
        """Products, and convolutions, with rows most of which equal earlier ones, with the ``share`` of these."""

        def lost(one: Operation) -> float:
            return 0.0 if one in self._sparse else _alike(one)

        waste = self._waste(self._last, lambda one: 0.0 if one in self._sparse else _alike(one.forward or one))
        return waste and waste | {"share": max(self._last, key=lambda one: one.seconds * lost(one)).alike}

    def order(self) -> dict[str, Any] | None:
        """Products that another order makes cheaper, the largest of this ``shape``."""
        whole = avoidable(self._last)
        waste = self._waste(self._last, lambda one: whole.get(one, 0.0))
        return waste and waste | {"shape": max(whole, key=lambda one: one.size.makes).size.shape}

    def broadcast(self) -> dict[str, Any] | None:
        """Large tensors, made of far smaller ones and reduced again, of this ``shape`` and so many ``bytes``."""
        large = broadcast_of(self._last)
        waste = self._waste(self._last, lambda one: float((one.forward or one) in large))
        if not waste:
            return None
        largest = max(large, key=lambda one: one.size.bytes).size
        return waste | {"shape": largest.shape, "bytes": largest.bytes}

    def carried(self) -> dict[str, Any] | None:
        """Copies of earlier copies, the largest of so many ``bytes``, with the ``lines`` that do nothing else."""
        again = copied_again(self._flow.operations)
        waste = self._waste(self._last, lambda one: again.get(one, 0.0))
        if not waste:
            return None
        largest = max(one.size.bytes for one in again)
        return waste | {"bytes": largest, "lines": _nothing_but(again, self._last, _LINE)}

    def sliced(self) -> dict[str, Any] | None:
        """Copies of the gradient of a tensor that was written part by part, the largest of so many ``bytes``."""
        copies = sliced_by(self._last)
        waste = self._waste(self._last, lambda one: float(one in copies))
        return waste and waste | {"bytes": max(one.size.bytes for one in copies)}

    def loop(self) -> dict[str, Any] | None:
        """What rounds of a loop take, ``rounds`` of them, that could be computed at once."""
        least = sorted(one.seconds for one in self._last)[int(QUICKEST * len(self._last))] if self._last else 0.0
        looped = {  # where what is computed again is mended
            one: rounds
            for one, rounds in together(self._last).items()
            if one.phase not in ELSEWHERE
            and _computes(one, backward=True)
            and not self._again(one)
            and (one.forward or one) not in self._constant
        }

        def saved(one: Operation) -> float:
            return _saved(one, looped[one], least) if one in looped else 0.0

        def lines_of(one: Operation) -> Sequence[Line]:
            return lines_of(one.forward) if one.forward is not None and one.forward in looped else one.site.lines

        waste = self._waste(self._last, saved, lines_of)
        weights = defaultdict[int, float](float)  # of loops within each other
        for one, rounds in looped.items():
            weights[rounds] += one.seconds * saved(one)
        return waste and waste | {"rounds": max(weights, key=lambda rounds: weights[rounds])}

    def attention(self) -> dict[str, Any] | None:
        """Scaling, masking and softmax between two products, of this ``shape``, that one operation computes."""
        parts = attention_of(self._first, self._needed)
        waste = self._waste(self._first, lambda one: float((one.forward or one) in parts))
        return waste and waste | {"shape": max(parts, key=lambda one: one.size.makes).size.shape}

    def slower(self, variant: str) -> dict[str, Any] | None:
        """What operations take longer than this variant of them (``variants.py``), with what these tell.

        Of several types, that of the one that costs most; of ``dtype`` also the share of the operations' time that was
        ``tried`` in single precision.
        """
        groups = defaultdict[str, list[Operation]](list)
        for one in self._last:
            if variant in one.slower:
                groups[one.slower[variant].details.get("dtype", "")].append(one)

        def lost(one: Operation) -> float:
            return one.slower[variant].seconds

        most = max(groups.values(), key=lambda group: sum(map(lost, group)), default=[])
        waste = self._waste(most, lambda one: min(1.0, lost(one) / max(one.seconds, 1e-9))) or {}
        waste |= max(most, key=lost).slower[variant].details if waste else {}
        if variant == "dtype" and most:
            tried = sum(one.seconds for one in self._last if variant in one.slower)
            waste["tried"] = tried / sum(one.seconds for one in self._last)
        return waste or None

    def _waste(
        self,
        operations: Iterable[Operation],
        share_of: Callable[[Operation], float],
        lines_of: Callable[[Operation], Sequence[Line]] = lambda one: one.lines,
    ) -> dict[str, Any] | None:
        """What a share of each of these operations takes of their phases, and where most of it is."""
        lost, spent, places = defaultdict[str, float](float), {}, []
        for one in operations:
            timed = self._later.get(one, one)
            if one.phase in PHASES and (seconds := timed.seconds * share_of(one)):
                lost[one.phase] += seconds
                spent[one.phase] = self._flow.spent[timed.step].get(one.phase, 0.0)
                places.append((seconds, lines_of(one)))
        longer = {phase: seconds for phase, seconds in lost.items() if seconds > 0}
        net = sum(lost.values()) / sum(longer.values()) if longer else 0.0  # a variant may be slower in other phases
        shares = {phase: net * seconds / max(seconds, spent[phase]) for phase, seconds in longer.items()}
        shares = {phase: share for phase, share in shares.items() if share >= LEAST}
        places = [(seconds, lines) for seconds, lines in places if seconds > 0]
        return {**shares, **located(where(places))} if shares else None

    def _again(self, one: Operation) -> Operation | None:
        """What was computed before: this operation, or the one whose gradients it computes, or adds up.

        The first of its like must have had gradients computed, too.
        """
        if (gradient := added(one)) is not one:
            return self._again(gradient)
        twin = next((each for each in (one, one.forward) if each in self._same), None)
        if twin is None or twin in self._constant or (twin is not one and self._same[twin] not in self._learned):
            return None
        return twin

    def _apart(self, one: Operation) -> Sequence[Line]:
        """The lines of what computes again what another did, down to the first that is not the other's."""
        if (again := self._again(one)) is None:
            return ()
        first = self._same[again]
        # The user's lines do not call what a backward pass computes: its site has the pass's own.
        own, others = (again.site.lines, first.site.lines) if again.backward else (again.lines, first.lines)
        pairs = zip(own, others, strict=False)
        alike = next((depth for depth, (mine, theirs) in enumerate(pairs) if mine != theirs), len(own))
        return own[: alike + 1]

    def _is_sparse(self, one: Operation) -> bool:
        """Whether it computes with zeros, and not because nothing uses most of its results."""
        forward = one.forward or one
        zeros = _has_zeros(one) and not _is_of_maximum(one)
        return zeros and (_has_zeros(forward) or self._needed[forward] > MOSTLY)

    def _unused(self, one: Operation) -> float:
        computed = one.forward if one.backward else one
        if computed is None or not _computes(computed) or self._is_sparse(one):
            return 0.0
        if one.backward and computed.name in LOSSES:  # a gradient for each score, also of ignored labels
            return 1 - min((source.share for source in computed.sources), default=1.0)
        if one.name == "sort" and 0 < self._needed[one] <= SELECTED:
            return SORTING
        by_parts = computed.pointwise or computed.name in BY_PARTS
        return 1 - self._needed[computed] if by_parts else float(not self._needed[computed])


def needed_of(operations: Sequence[Operation], *, updated: bool = True) -> dict[Operation, float]:
    """The share of each operation's results that something uses.

    Operations that read a part of them are taken to read different ones, unless it is known to be the same; but a
    backward pass reads what the forward pass did. Gradients that stay are used if something reads them before they do.
    Where no update was seen, all are: a script may read them unseen.
    """
    read = {source.operation for one in operations for source in one.sources}
    read_later = {source.operation for one in operations if not one.backward for source in one.sources}

    def is_used(one: Operation) -> bool:
        kept = one.lasts and not (one.backward and updated and one not in read_later)
        unread = (one.autograd.unseen or (one.backward and not updated)) and one not in read
        return kept or one.ends or not one.writes or unread

    rows = {one: float(is_used(one)) for one in operations}
    numbers, backward = rows.copy(), dict.fromkeys(operations, 0.0)  # rows: those with any number that is used
    parts = dict[tuple[Operation, Operation | range], tuple[float, float]]()
    for one in reversed(operations):
        rows[one], numbers[one] = max(rows[one], backward[one]), max(numbers[one], backward[one])
        for source in one.sources if numbers[one] else ():
            made = source.operation
            of_numbers = source.share * {"numbers": numbers[one], "rows": rows[one], "all": 1.0}[source.part]
            of_rows = source.share * (1.0 if source.part == "all" else rows[one]) if source.rows else 1.0
            if one.backward and not made.backward:
                backward[made] = max(backward[made], of_rows)
            else:
                part = made, one if source.region is None else source.region
                before, rows_before = parts.get(part, (0.0, 0.0))
                now = max(before, min(source.share, before + of_numbers))
                rows_now = max(rows_before, min(source.share if source.rows else 1.0, rows_before + of_rows))
                numbers[made] = min(1.0, numbers[made] + now - before)
                rows[made] = min(1.0, rows[made] + rows_now - rows_before)
                parts[part] = now, rows_now
    return numbers


def _later(before: Sequence[Operation], now: Sequence[Operation]) -> dict[Operation, Operation]:
    """Of phases that run the same operations in both steps, each one's like: the first time it may take longer."""
    phases = [[[one for one in step if one.phase == phase] for step in (before, now)] for phase in PHASES]
    alike = (each for each in phases if [one.name for one in each[0]] == [one.name for one in each[1]])
    return {first: later for each in alike for first, later in zip(*each, strict=True)}


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


def _alike(operation: Operation) -> float:
    """The share of rows that equal an earlier one; 0 where these are not most."""
    return operation.alike if operation.alike >= ALIKE else 0.0


def _has_zeros(operation: Operation) -> bool:
    """Whether nearly all numbers of a matrix are zeros; all are in weights that begin so."""
    return MOSTLY <= operation.zeros < 1


def _is_of_maximum(operation: Operation) -> bool:
    """Whether it computes with the gradients of a maximum: zeros but where that was, which may be in any row."""
    one: Operation | None = operation
    while one is not None and one.backward and (one is operation or one.name not in BY_PARTS):
        if one.forward is not None and one.forward.name in _MAXIMA:
            return True
        one = next((source.operation for source in one.sources if source.operation.backward), None)
    return False


def added(operation: Operation) -> Operation:
    """Of what a backward pass adds up, the last gradient of a known operation; else the operation itself."""
    if operation.backward and operation.forward is None and operation.name in ADDING:
        made = [source.operation for source in operation.sources if source.operation.forward is not None]
        return made[-1] if made else operation
    return operation


def _nothing_but(
    wasted: Collection[Operation], operations: Iterable[Operation], named: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The user's functions, or lines, as ``named``, that compute hardly anything but this."""
    whole, part = defaultdict[tuple[Any, ...], float](float), defaultdict[tuple[Any, ...], float](float)
    for one in operations:
        for line in one.lines[-1:] if not one.backward else ():
            place = tuple(line[position] for position in named.values())
            whole[place] += one.seconds
            part[place] += one.seconds * (one in wasted)
    places = [place for place in whole if part[place] >= NEARLY * whole[place]]
    return [dict(zip(named, place, strict=True)) for place in places]


def many(operations: Iterable[Operation]) -> dict[str, Any]:
    """Where most of the operations are, however long each takes; {} where that is not in the user's own code."""
    places = [(1.0, one.lines) for one in operations if not one.backward]
    line = where(places) if places else None
    return located(line) if line else {}


def where(places: Sequence[tuple[float, Sequence[Line]]]) -> Line | None:
    """The line with most of these seconds, in the innermost function through which nearly all of them lead.

    None where most of them lead through no line of the user's own.
    """
    total, own = (sum(seconds for seconds, lines in places if lines or every) for every in (True, False))
    if own < total / 2:
        return None
    busiest = None
    for depth in range(max(len(lines) for _, lines in places)):
        lines, functions = defaultdict[Line, float](float), defaultdict[tuple[str, str], float](float)
        for seconds, path in places:
            for line in path[depth : depth + 1]:
                lines[line] += seconds
                functions[line[0], line[2]] += seconds
        if not functions:
            break
        most = max(functions, key=lambda one: functions[one])
        if busiest is not None and functions[most] < TOGETHER * own:
            break
        places = [(seconds, path) for seconds, path in places if depth < len(path) and path[depth][::2] == most]
        busiest = max((line for line in lines if line[::2] == most), key=lambda line: lines[line])
    return busiest
