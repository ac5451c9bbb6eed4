"""Calls of torch's operations: what they read, and what they write."""

from collections.abc import Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .contents import followed, number_of, room_of, zeros_of
from .frames import Line

PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "mv"}
DECOMPOSITIONS = {  # and what solves by them: the place of the matrix among their operands
    **dict.fromkeys(("linalg_cholesky_ex", "linalg_lu_factor_ex", "linalg_inv_ex", "linalg_qr", "_linalg_eigh"), 0),
    **dict.fromkeys(("linalg_matrix_exp", "_linalg_svd", "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"), 0),
    **dict.fromkeys(("linalg_solve_triangular", "linalg_lu_solve", "cholesky_inverse"), 0),
    **dict.fromkeys(("triangular_solve", "cholesky_solve"), 1),
}
PICKING = {"index", "index_select", "gather", "embedding", "take"}  # read as much as they return
SOFTMAX = {"_softmax", "_log_softmax"}
LOSSES = {"nll_loss_forward", "nll_loss2d_forward"}  # of labels, some of which may be ignored
CLOSED = 0.5  # of a gate's or mask's numbers, at least: dropping whole samples at random closes less
_GATES, _WIDE = 16, 8  # numbers of a gate at least, and of each row that it lets through or not
LEFT = {"mm": 0, "addmm": 1}  # the operand each of whose rows makes a row of the product
_COPYING = {"_to_copy", "clone", "copy_"}


class CallSite(NamedTuple):
    """Where an operation is called."""

    lines: tuple[Line, ...]  # of the user's own code that called it, or its backward pass, the outermost first
    instructions: int  # that called it, from the innermost of these lines on, as a number
    of_torch: bool  # whether a loop of torch's own calls it: over weights, or over time steps


class Size(NamedTuple):
    """How much an operation reads and makes."""

    reads: int  # numbers that the largest of its operands holds
    makes: int  # that the largest of its results holds
    shape: list[int]  # of that result
    bytes: int  # of that result
    full: int  # operands that are as large
    inner: int  # of a product: how many numbers are added up for each of its results; else 0


class Slower(NamedTuple):
    """How much longer an operation takes than a variant of it (``variants.py``), and what the record says of that."""

    seconds: float  # negative where the variant is slower
    details: Mapping[str, Any]


class Autograd(NamedTuple):
    """What an operation is to autograd."""

    graph_task: int  # the backward pass that it is part of; -1 outside of one
    forward: "Operation | None"  # whose gradients it computes, where that is known
    of_weights: bool  # whether it reads any: what needs gradients, and is made of nothing else that does
    slices: bool  # whether it passes on the gradient of a tensor into a part of which was written
    unseen: bool  # whether Python may read its results unseen, as NumPy does where they have no gradient


@dataclass(slots=True, eq=False, kw_only=True)
class Operation:
    """An operation that has run."""

    name: str  # as in ``aten::mm``, without the name space
    step: int  # 0 for the first one that is followed
    phase: str
    seconds: float  # with calling it, and with making views of its operands
    signature: int  # equal for the same operation on the same values
    site: CallSite
    size: Size
    autograd: Autograd
    pointwise: bool  # whether each number of its result needs one of each operand
    zeros: float  # the share of them in the large factor of a product that has most
    factor: list[int]  # the shape of that factor
    alike: float  # of the rows that a large product or convolution computes with, the share that equal an earlier one
    open: float  # of the rows of its operand, the share that a gate or a mask lets through; 1 without one
    slower: Mapping[str, Slower]  # than variants of it, by kind
    sources: list["Source"]  # what computed its operands
    after: set["Operation"]  # what has written the parts of memory that it reads
    # How many operations its step had before Python can have made a part of what it reads: memory that no operation
    # wrote, or a number that differs from call to call.
    since: int
    of_words: bool  # whether its rows are those of an embedding, some of which recur, or follow from them row by row
    steers: bool  # whether it tells Python a whole number, or a yes or no, on which anything may depend
    writes: bool  # whether it has results, or changes its operands
    ends: bool = False  # whether something beside operations reads its results
    lasts: bool = False  # whether its results outlive the steps that are followed

    @property
    def backward(self) -> bool:
        """Whether it is part of a backward pass."""
        return self.autograd.graph_task != -1

    @property
    def forward(self) -> "Operation | None":
        """The operation whose gradients it computes, where that is known."""
        return self.autograd.forward

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines that called it, or in a backward pass those of ``forward``."""
        return self.site.lines if self.forward is None else self.forward.lines

    @property
    def numbers(self) -> int:
        """How many numbers it goes through."""
        return max(self.size.reads, self.size.makes)


class Source(NamedTuple):
    """What computed an operand, and how much of that an operation reads.

    Attributes:
        share: Of its results.
        rows: Whether these are whole rows, of the last dimension.
        part: What a part of the reading operation's results needs: the same ``numbers``, the same ``rows``, or all.
        region: Which bytes of its memory these are; None if that is not known, as of rows that an index picks.
    """

    operation: Operation
    share: float
    rows: bool
    part: Literal["numbers", "rows", "all"]
    region: range | None


class Call(NamedTuple):
    """A call of an operation: its arguments, which tensors are among them, and which it wrote."""

    func: Any
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    arguments: list[Any]  # these, with what lists among them hold
    read: list[Tensor]
    unfollowed: bool  # whether it reads tensors that are not followed, such as sparse ones
    changed: list[Tensor]  # of those it reads
    made: list[Tensor]  # changed or new
    views: bool  # whether all of its results are views of what it read
    escapes: bool  # whether some of its results are no such tensors
    graph_task: int  # of the backward pass; -1 outside of one

    @property
    def backward(self) -> bool:
        """Whether it is part of a backward pass."""
        return self.graph_task != -1


def matrices_of(call: Call) -> list[Tensor]:
    """The operands of a product; of a decomposition, or what solves by one, the matrix alone."""
    if call.name in PRODUCTS:
        return call.read
    place = DECOMPOSITIONS.get(call.name)
    return [] if place is None else call.read[place : place + 1]


def open_of(call: Call) -> dict[int, float]:
    """The share of an operand's rows that a gate or a mask, of a number for each row, lets through, by its place.

    As in ``mask[:, None] * rows``, in ``rows.masked_fill(mask[:, None], 0)``, or for the weighted sum of few rows in
    ``weights[:, None] @ rows``. Empty where most rows pass.
    """
    if call.backward or len(call.read) != 2:
        return {}
    gate, rows = sorted(call.read, key=Tensor.numel)
    place = 0 if rows is call.read[0] else 1
    weighing = call.name == "bmm" and place == 1 and gate.shape[-2] == 1
    by_row = call.name in ("mul", "masked_fill") and gate.ndim > 0 and gate.shape[-1] == 1
    if not (weighing or by_row) or gate.numel() < _GATES or rows.numel() < _WIDE * gate.numel():
        return {}
    zeros = zeros_of(gate)
    closed = 1 - zeros if call.name == "masked_fill" else zeros
    return {place: 1 - closed} if CLOSED <= closed < 1 else {}


def call_of(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Call:
    """A call that gave this result."""
    arguments = [*_leaves((args, kwargs.values()))]
    read = followed(arguments)
    written = (args[place] if place < len(args) else kwargs.get(name) for place, name in _changes(func))
    changed = followed(_leaves(written))
    if func._schema.name == "aten::native_batch_norm" and arguments[5]:  # whose schema does not tell
        changed += followed(arguments[3:5])
    known = {number_of(one) for one in read}
    results = [one for one in _leaves((result,)) if isinstance(one, Tensor)]
    tensors = followed(results)
    made = [*(one for one in tensors if number_of(one) not in known), *changed]
    escapes = len(tensors) < len(results)
    return Call(
        func=func,
        name=func._schema.name.partition("::")[2],
        args=args,
        kwargs=kwargs,
        arguments=arguments,
        read=read,
        unfollowed=sum(isinstance(one, Tensor) for one in arguments) > len(read),
        changed=changed,
        made=made,
        views=bool(results) and not made and not escapes,
        escapes=escapes,
        graph_task=torch._C._current_graph_task_id(),
    )


def size_of(call: Call) -> Size:
    """How much it reads and makes."""
    made = ((one.numel(), list(one.shape), one.nbytes) for one in call.made)
    makes, shape, size = max(made, default=(0, list[int](), 0))
    numbers = [min(one.numel(), room_of(one)) for one in call.read]
    full = sum(count >= makes for count in numbers)
    inner = call.read[-1].shape[max(-2, -call.read[-1].ndim)] if call.name in PRODUCTS else 0
    return Size(reads=max(numbers, default=0), makes=makes, shape=shape, bytes=size, full=full, inner=inner)


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """What is in them, and in lists within them."""
    for one in values:
        if isinstance(one, list | tuple | ValuesView):
            yield from _leaves(one)
        else:
            yield one


@lru_cache(maxsize=4096)
def _changes(func: Any) -> list[tuple[int, str]]:
    """The arguments that an operation writes into: their places and names."""
    arguments = enumerate(func._schema.arguments)
    return [(place, one.name) for place, one in arguments if one.alias_info is not None and one.alias_info.is_write]


@lru_cache(maxsize=4096)
def is_random(func: Any) -> bool:
    """Whether an operation draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


@lru_cache(maxsize=4096)
def is_pointwise(func: Any) -> bool:
    """Whether each number of an operation's result needs one of each operand."""
    return torch.Tag.pointwise in func.tags or func._schema.name.partition("::")[2] in _COPYING


def part_needed(call: Call, place: int) -> Literal["numbers", "rows", "all"]:
    """What of this operand a part of the results needs."""
    if not call.made:
        return "all"
    if call.read[place].shape == call.made[0].shape:
        if is_pointwise(call.func):
            return "numbers"
        if not place and _normalises_rows(call):
            return "rows"
    stacked = call.name == "stack" and call.made[0].shape[-1:] == call.read[place].shape[-1:]
    return "rows" if stacked or LEFT.get(call.name) == place else "all"


def _normalises_rows(call: Call) -> bool:
    """Whether it brings each row, of the last dimension, to a sum, or a mean and a variance."""
    values = call.read[0]
    if call.name == "native_layer_norm":
        return call.made[1].numel() * values.shape[-1] == values.numel()
    return call.name in SOFTMAX and call.arguments[1] in (-1, values.ndim - 1)
