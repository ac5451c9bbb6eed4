"""What the calls of modules show in the first steps of a training: calls for nothing, and inputs of zeros."""

import gc
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.utils._pytree import tree_leaves

from .gradients import FirstSteps

LARGE, LOOKED_AT = 100_000, 1_000_000  # numbers of an input that is looked at, and about as many of a larger one
MOSTLY = 0.98  # of them: a ReLU and dropout leave fewer zeros


@dataclass
class _Call:
    """A call of a module, which may be within another's."""

    began: float
    drawn: Tensor  # the state of torch's random numbers then
    count: int  # of calls with this input in this step
    repeated: bool  # with an input that the module has had in this step, and not within such a call
    outermost: bool
    inside: bool  # a repeated call, or one itself
    seconds: float = 0.0
    learned: bool = False  # the backward pass went through it

    def learn(self, _: Tensor) -> None:
        """As a hook of its output."""
        self.learned = True


class RepeatedCalls(FirstSteps):
    """Looks at the calls of modules, of their children and of those in their lists.

    Two calls are the same if module, mode, weights and arguments are: the same tensors, or views of their memory.
    Modules that draw random numbers are left out, such as those with dropout: they differ from call to call. So are
    calls in a backward pass, which checkpoints make, and modules that are compiled.

    Attributes:
        failure: An error of this class's own, after which it sees nothing more. It is kept from the training.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        super().__init__()
        self._thread = get_ident()
        self._open: list[_Call] = []
        self._ended: list[_Call] = []  # of this step
        self._seen: dict[Any, int] = {}
        self._held: list[Any] = []  # arguments of this step: no other tensor takes their memory
        self._random: set[int] = set()  # modules, by their ``id``
        self._most: dict[str, int] = {}  # calls with the same input in a step
        self._seconds, self._again = [0.0, 0.0], [0.0, 0.0]  # of all calls and of repeated ones; of those that learned
        for one in _watched(modules):
            self._hooks.append(one.register_forward_pre_hook(self._enter, with_kwargs=True))
            self._hooks.append(one.register_forward_hook(self._leave, always_call=True))

    def found(self) -> dict[str, Any] | None:
        """What is called again: its ``name``, how many ``calls`` a step makes with the same input, and their shares.

        ``forward`` is the repeated calls' share of the time of all calls, ``backward`` that of those through which a
        backward pass went. None where no call is repeated.
        """
        if not self._most or not self._seconds[0]:
            return None
        name = max(self._most, key=lambda one: self._most[one])
        shares = [again / whole if whole else 0.0 for again, whole in zip(self._again, self._seconds, strict=True)]
        return {"name": name, "calls": self._most[name], "forward": shares[0], "backward": shares[1]}

    def end_step(self) -> None:
        """A step is over: add up its calls."""
        for call in self._ended if self._steps else ():
            for place in range(1 + call.learned):
                self._seconds[place] += call.seconds * call.outermost
                self._again[place] += call.seconds * call.repeated
        self._seen, self._held, self._open, self._ended = {}, [], [], []
        super().end_step()

    def remove(self) -> None:
        """See no more, and hold no argument; safe to call twice."""
        super().remove()
        self._held = []

    def _enter(self, module: nn.Module, *given: Any) -> None:
        if self.failure or is_compiling() or get_ident() != self._thread:
            return
        try:
            parts = tree_leaves(given)
            count = 0
            if not _is_in_backward() and id(module) not in self._random and any(map(torch.is_tensor, parts)):
                weights = next(module.parameters())._version
                key = (id(module), module.training, weights, *map(_identity, parts))
                count = self._seen[key] = self._seen.get(key, 0) + 1
                self._held += parts
            inside = bool(self._open) and self._open[-1].inside
            repeated = count > 1 and not inside
            began, drawn, outermost = time.perf_counter(), torch.get_rng_state(), not self._open
            self._open.append(_Call(began, drawn, count, repeated, outermost, inside or repeated))
        except Exception as error:
            self.failure = error

    def _leave(self, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        if self.failure or is_compiling() or get_ident() != self._thread or not self._open:
            return
        call = self._open.pop()
        call.seconds = time.perf_counter() - call.began
        if not torch.equal(call.drawn, torch.get_rng_state()):
            self._random.add(id(module))
            call.repeated = False
        if _is_in_backward():
            return
        self._ended.append(call)
        if call.repeated and self._steps:
            name = type(module).__name__
            self._most[name] = max(self._most.get(name, 0), call.count)
        for tensor in tree_leaves(output):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(call.learn)  # type: ignore[no-untyped-call]


class SparseInputs(FirstSteps):
    """Looks for mostly zeros in what the same modules are called with, such as an adjacency matrix or one-hot vectors.

    Attributes:
        found: of the input with the most zeros, the ``share`` of these, its ``shape``, and the ``name`` of the module
            that was called with it; None without any.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        super().__init__()
        self.found: dict[str, Any] | None = None
        self._zeros = 0.0
        for one in _watched(modules):
            self._hooks.append(one.register_forward_pre_hook(self._look, with_kwargs=True))

    def _look(self, module: nn.Module, *given: Any) -> None:
        if self.failure or is_compiling():
            return
        try:
            for one in tree_leaves(given):
                if not isinstance(one, Tensor) or not one.is_floating_point() or one.layout is not torch.strided:
                    continue
                if one.ndim < 2 or one.numel() < LARGE or one.device.type != "cpu":
                    continue
                rows = one.detach()[:: math.ceil(one.numel() / LOOKED_AT)]
                share = 1 - int(rows.count_nonzero()) / rows.numel()
                if share >= MOSTLY and share * one.numel() > self._zeros:
                    self._zeros = share * one.numel()
                    self.found = {"name": type(module).__name__, "shape": list(one.shape), "share": share}
        except Exception as error:
            self.failure = error


def networks() -> list[nn.Module]:
    """The modules of this process that are part of no other one: a loop's script hands none over."""
    found = living(nn.Module)
    parts = {id(child) for one in found for child in one.children()}
    return [one for one in found if id(one) not in parts]


def living(kind: type) -> list[Any]:
    """Objects of this kind. They are asked for their type: a lazy one may import what it stands for."""
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


def _is_in_backward() -> bool:
    """Whether this thread runs a backward pass."""
    return torch._C._current_graph_task_id() != -1


def _watched(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Those whose calls are looked at: of each of these that no part of is compiled what it has `_called`."""
    watched: dict[int, nn.Module] = {}
    for module in modules:
        called = list(_called(module))
        if not any(map(_is_compiled, (module, *called))):
            watched |= {id(one): one for one in called}
    return list(watched.values())


def _called(module: nn.Module) -> Iterator[nn.Module]:
    """A module, its children, and what its lists and dictionaries hold; without those that have no weights."""
    for one in (module, *module.children()):
        for each in one.children() if isinstance(one, nn.ModuleList | nn.ModuleDict) else (one,):
            if next(each.parameters(), None) is not None:
                yield each


def _is_compiled(module: nn.Module) -> bool:
    compiled = getattr(module, "_compiled_call_impl", None) or getattr(module, "_compiler_ctx", None)
    return bool(compiled) or type(module).__name__ == "OptimizedModule"


def _identity(part: Any) -> Any:
    """Of an argument, or a part of one: the same memory, and unchanged; of no tensor, the same value or object."""
    if isinstance(part, Tensor):
        return part.data_ptr(), part._version, tuple(part.shape), part.stride(), part.dtype
    return part if isinstance(part, int | float | str | None) else id(part)
