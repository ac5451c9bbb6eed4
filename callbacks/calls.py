"""Calls of torch's operations: what they read, and what they write."""

from collections.abc import Iterable, Iterator, Mapping, ValuesView
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .contents import followed, number_of


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
    theirs = {number_of(one) for one in read}
    results = [one for one in _leaves((result,)) if isinstance(one, Tensor)]
    seen = followed(results)
    made = [*changed, *(one for one in seen if number_of(one) not in theirs)]
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
