"""Calls of torch's operations: what they read, and what they write."""

from collections.abc import Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .contents import followed, number_of
from .frames import Line

PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "mv"}
DECOMPOSITIONS = {  # and what solves by them: the place of the matrix among their operands
    **dict.fromkeys(
        ("linalg_cholesky_ex", "linalg_lu_factor_ex", "linalg_inv_ex", "linalg_qr", "linalg_matrix_exp"), 0
    ),
    **dict.fromkeys(("_linalg_eigh", "_linalg_svd", "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"), 0),
    **dict.fromkeys(("linalg_solve_triangular", "linalg_lu_solve", "cholesky_inverse"), 0),
    **dict.fromkeys(("triangular_solve", "cholesky_solve"), 1),
}
PICKING = {"index", "index_select", "gather", "embedding", "take"}  # read as much as they return
SOFTMAX = {"_softmax", "_log_softmax"}


@dataclass(slots=True, eq=False)
class Operation:
    """One that has run.

    Attributes:
        name: As in ``aten::mm``, without the name space.
        step: 0 for the first one that is followed.
        seconds: It took, with calling it, and with making views of its operands.
        caller: The lines of the user's own code that called it, or its backward pass, the outermost first.
        lines: These, or in a backward pass those of ``forward``.
        signature: Equal for the same operation on the same values.
        forward: The operation whose gradients it computes, where that is known.
        graph_task: The backward pass that it is part of; -1 outside of one.
        of_torch: Whether a loop of torch's own calls it: over weights, or over time steps.
        unseen: Whether Python may read its results unseen, as NumPy does where they have no gradient.
        site: The instructions that called it, from the innermost line of the user's own code on.
        reads: How many numbers the largest of its operands holds.
        makes: How many the largest of its results holds, which is of this ``shape``, and takes so many ``bytes``.
        full: How many of its operands are as large as its largest result.
        pointwise: Whether each number of its result needs one of each operand.
        zeros: The share of them in the large factor of a product that has most, which is of this shape (``factor``).
        alike: Of the rows that a large product or convolution computes with, the share that equal an earlier one.
        sources: What computed its operands.
        after: What has written the parts of memory that it reads.
        of_words: Whether its rows are those of an embedding, some of which recur, or follow from them row by row.
        of_weights: Whether it reads any: what needs gradients, and no operation has made.
        steers: Whether it tells Python a whole number, or a yes or no, on which anything may depend.
        since: How many operations its step had before Python can have made a part of what it reads: memory that no
            operation wrote, or a number that differs from call to call.
        writes: Whether it has results, or changes its operands.
        ends: Whether something beside operations reads its results.
        lasts: Whether its results outlive the steps that are followed.
    """

    name: str
    step: int
    phase: str
    seconds: float
    caller: tuple[Line, ...]
    lines: tuple[Line, ...]
    signature: int
    forward: "Operation | None"
    graph_task: int
    of_torch: bool
    unseen: bool
    site: int
    reads: int
    makes: int
    shape: list[int]
    bytes: int
    full: int
    pointwise: bool
    zeros: float
    factor: list[int]
    alike: float
    sources: list["Source"]
    after: set["Operation"]
    of_words: bool
    of_weights: bool
    steers: bool
    since: int
    writes: bool
    ends: bool = False
    lasts: bool = False

    @property
    def backward(self) -> bool:
        """Whether it is part of a backward pass."""
        return self.graph_task != -1

    @property
    def numbers(self) -> int:
        """How many it goes through."""
        return max(self.reads, self.makes)


class Source(NamedTuple):
    """What computed an operand, and how much of that an operation reads.

    Attributes:
        share: Of its results.
        rows: Whether these are whole rows, of the last dimension.
        part: What a part of the reading operation's results needs: the same ``numbers``, the same ``rows``, or all.
    """

    operation: Operation
    share: float
    rows: bool
    part: Literal["numbers", "rows", "all"]


class Call(NamedTuple):
    """A call of an operation: what it was given, which tensors are among that, and which it wrote."""

    func: Any
    name: str
    given: list[Any]
    read: list[Tensor]
    changed: list[Tensor]  # of these
    made: list[Tensor]  # changed or new
    views: bool  # whether all of its results are views of what it read
    escapes: bool  # whether some of its results are no such tensors
    graph_task: int  # of the backward pass; -1 outside of one

    @property
    def backward(self) -> bool:
        """Whether it is part of a backward pass."""
        return self.graph_task != -1


def call_of(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Call:
    """A call that gave this result."""
    given = [*_leaves((args, kwargs.values()))]
    read = followed(given)
    arguments = (args[place] if place < len(args) else kwargs.get(name) for place, name in _changes(func))
    changed = followed(_leaves(arguments))
    if func._schema.name == "aten::native_batch_norm" and given[5]:  # whose schema does not tell
        changed += followed(given[3:5])
    theirs = {number_of(one) for one in read}
    results = [one for one in _leaves((result,)) if isinstance(one, Tensor)]
    seen = followed(results)
    made = [*(one for one in seen if number_of(one) not in theirs), *changed]
    name, task = func._schema.name.partition("::")[2], torch._C._current_graph_task_id()
    escapes = len(seen) < len(results)
    return Call(func, name, given, read, changed, made, bool(results) and not made and not escapes, escapes, task)


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
