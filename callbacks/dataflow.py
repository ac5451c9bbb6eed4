"""How values flow from operation to operation in two early steps of a training.

torch shows each operation to a mode of its dispatcher, below autograd, in the thread that entered the mode. So the
operations are known, the memory that they read and write, and the lines that call them. No tensor is kept.
"""

import os
import sys
import time
import weakref
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from .calls import (
    LEFT,
    LOSSES,
    PICKING,
    Autograd,
    Call,
    CallSite,
    Operation,
    Source,
    call_of,
    is_pointwise,
    is_random,
    matrices_of,
    open_of,
    part_needed,
    size_of,
)
from .columns import PHASES
from .contents import LARGE, alike_of, digest, is_followed, number_of, part_of_memory, room_of, width_of, zeros_of
from .frames import Line, instructions_of, is_in_torchs_loop, may_detach, outwards, user_lines
from .taken_out import forget, watch
from .variants import Variants

STEPS = 2  # that are followed: the second one shows what becomes of the first one's results, and what is the same
CALLING = 5e-5  # seconds before an operation, at most, that count as calling it
FEW = 16  # numbers: Python may make such a tensor anew each time, and their values tell whether it is the same
MOST = 30_000  # operations, after which no more are followed
SLICES = "torch::autograd::CopySlices"
NAMED = 5  # of each phase, by how long they take

_REPLACING = {"copy_", "fill_", "zero_"}
_VALUES = int | float | str | None | torch.dtype | torch.device | torch.layout | torch.memory_format


@dataclass(slots=True)
class _Memory:
    """What tensors share. As long as it is referred to, no other one has its number."""

    reference: StorageWeakRef
    since: int  # how many operations there were when it was first seen
    writer: Operation | None = None  # the latest one that was seen
    # Bytes and what wrote them, in their order: no two overlap.
    parts: list[range] = field(default_factory=list)
    writers: list[Operation] = field(default_factory=list)
    digests: dict[tuple[object, ...], int] = field(default_factory=dict)  # of parts that no operation wrote
    place: int = 0  # among its results
    width: int = 0  # of a row

    def overlapping(self, part: range) -> slice:
        """Which of its parts have bytes of this one."""
        first = bisect_right(self.parts, part.start, key=lambda one: one.stop)
        return slice(first, bisect_left(self.parts, part.stop, lo=first, key=lambda one: one.start))

    def write(self, part: range, operation: Operation) -> None:
        """Have a part written, by an operation that has read what it changes of it."""
        places, written = self.overlapping(part), [(part, operation)]
        if before := list(zip(self.parts[places], self.writers[places], strict=True)):
            (first, its_writer), (last, last_writer) = before[0], before[-1]
            written = [
                (range(first.start, part.start), its_writer),
                *written,
                (range(part.stop, last.stop), last_writer),
            ]
        written = [(one, writer) for one, writer in written if one]
        self.parts[places], self.writers[places] = [one for one, _ in written], [writer for _, writer in written]


class Dataflow(TorchDispatchMode):
    """Follows the operations of the thread that calls `begin`, for ``STEPS`` steps or until `remove`.

    Args:
        phase: What that thread is in now, such as ``forward``.

    Attributes:
        operations: In their order; none where torch.compile, or too many, leave some out.
        lines: Files and lines of the user's own that call operations, those that only make views included.
        spent: Of each step that is over, the seconds of its phases without looking.
        updated: Whether an optimizer has updated weights in each of them.
        failure: An error of this class's own, after which it sees nothing more. It is kept from the training.
    """

    def __init__(self, phase: Callable[[], str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.failure: Exception | None = None
        self.operations, self.lines = list[Operation](), set[tuple[str, int]]()
        self.spent: list[Mapping[str, float]] = []
        self.updated = True
        self._phase, self._thread = phase, 0
        self._looked, self._calling = 0.0, 0.0  # when it last did; seconds since the last operation, with views
        self._passing = 0.0  # what an operation takes longer because it passes through here
        self._before = 0  # operations of earlier steps
        self._over = True  # whether operations are passed on without a look
        self._looking = defaultdict[str, float](float)  # seconds in the phases of this step
        self._memory: dict[int, _Memory] = {}
        self._floats: dict[tuple[str, tuple[Line, ...]], list[float]] = {}  # arguments of calls from the same lines
        self._variants = Variants()
        self._numbers: dict[int, Operation] = {}  # by what autograd calls them, as a backward pass tells

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Which would import it, a second in which training waits; ``begin`` does so where it is there."""
        return False

    def begin(self) -> None:
        """A step begins, the first one that is followed."""
        if _get_current_dispatch_mode() is not None:
            return  # somebody else's mode, which would see what looking computes
        if "torch._dynamo" in sys.modules and not hasattr(Dataflow.__torch_dispatch__, "__wrapped__"):
            # It would compile what this does, too.
            dispatch = torch.compiler.disable(Dataflow.__torch_dispatch__)  # type: ignore[no-untyped-call]
            Dataflow.__torch_dispatch__ = dispatch  # type: ignore[method-assign]
        self._thread, without = get_ident(), _adding()
        self.__enter__()  # type: ignore[no-untyped-call]
        _entered.add(self)
        watch(self._leaves)
        self._over, self._passing = False, max(0.0, _adding() - without)

    def end_step(self, spent: Mapping[str, float], *, updated: bool = True) -> None:
        """A step is over, which has spent so many seconds in its phases, and ``updated`` weights."""
        if self._over:
            self.remove()
            return
        self.updated &= updated
        self.spent.append({phase: seconds - self._looking[phase] for phase, seconds in spent.items()})
        self._looking.clear()
        self._before = len(self.operations)
        if len(self.spent) == STEPS:
            for one in self._memory.values():
                if one.writer is not None and not one.reference.expired():  # type: ignore[no-untyped-call]
                    one.writer.lasts = True
            self.remove()

    def costliest(self) -> dict[str, dict[str, float]]:
        """Of each phase, the operations that take most of it, by name: their shares, the largest first."""
        shares = {phase: defaultdict[str, float](float) for phase in PHASES}
        for one in self.operations:
            if (spent := sum(step.get(one.phase, 0.0) for step in self.spent)) > 0 and one.phase in shares:
                shares[one.phase][one.name] += one.seconds / spent
        most = {phase: sorted(names.items(), key=lambda each: -each[1])[:NAMED] for phase, names in shares.items()}
        return {phase: dict(named) for phase, named in most.items() if named}

    @property
    def follows(self) -> bool:
        """Whether it sees the operations of this step."""
        return not self._over

    def remove(self) -> None:
        """See no more; safe to call twice. Below a mode that was entered later it stays, and passes all on."""
        self._over = True
        forget(self._leaves)
        self._memory, self._numbers = {}, {}
        if self in _entered and get_ident() == self._thread and _get_current_dispatch_mode() is self:
            _entered.discard(self)
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, and see what it reads and writes."""
        began = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        if not self._over:
            try:
                ended, phase, learns = time.perf_counter(), self._phase(), torch.is_grad_enabled()
                self._calling += max(0.0, ended - max(self._looked, began - CALLING) - self._passing)
                with torch.no_grad():
                    self._add(call_of(func, args, kwargs or {}, result), phase, learns=learns)
                self._looked = time.perf_counter()
                self._looking[phase] += self._looked - ended + self._passing
            except Exception as error:
                self.failure, self._over = error, True
        return result

    def _add(self, call: Call, phase: str, *, learns: bool) -> None:
        frame = sys._getframe(2)
        if caller := user_lines(outwards(frame)):
            self.lines.add(caller[-1][:2])
        if call.views:
            writer = self._of(call.read[0]).writer if call.read else None
            if writer is not None and not call.backward and call.name == "detach" and may_detach(frame):
                writer.ends = True  # maybe for NumPy
            return
        if caller is None or len(self.operations) == MOST:
            self.operations, self._over = [], True
            return
        grows = learns and any(one.requires_grad for one in call.read)
        zeros, factor = _most_zeros(call)
        autograd, opened = self._autograd(call, grows=grows), open_of(call)
        signature, sources = self._signature(call), self._sources(call, autograd.forward, opened)
        after, since = self._after(call, caller)
        operation = Operation(
            name=call.name,
            step=len(self.spent),
            phase=phase,
            seconds=self._calling,
            signature=signature,
            site=CallSite(lines=caller, instructions=instructions_of(frame), of_torch=is_in_torchs_loop(frame)),
            size=size_of(call),
            autograd=autograd,
            pointwise=is_pointwise(call.func),
            zeros=zeros,
            factor=factor,
            alike=self._alike(call),
            open=min(opened.values(), default=1.0),
            slower=self._variants.slower(call, self._calling, self.spent[-1] if len(self.spent) == STEPS - 1 else None),
            sources=sources,
            after=after,
            since=since,
            of_words=_is_of_words(call, sources),
            steers=call.name == "_local_scalar_dense" and not any(one.is_floating_point() for one in call.read),
            writes=bool(call.made),
            ends=call.escapes,
        )
        self._calling = 0.0
        self.operations.append(operation)
        for place, one in enumerate(call.made):
            memory = self._of(one)
            memory.writer, memory.place, memory.width = operation, place, one.shape[-1] if one.ndim else 1
            memory.write(part_of_memory(one), operation)
        if grows:
            self._numbers[torch._C._autograd._get_sequence_nr() - 1] = operation

    def _leaves(self, tensor: Tensor) -> None:
        """Numbers leave torch, maybe for NumPy."""
        if self._over or get_ident() != self._thread or tensor.grad_fn is None or not is_followed(tensor):
            return
        try:
            memory = self._memory.get(number_of(tensor))
        except Exception as error:
            self.failure, self._over = error, True
        else:
            if memory is not None and memory.writer is not None:
                memory.writer.ends = True

    def _autograd(self, call: Call, *, grows: bool) -> Autograd:
        node = torch._C._current_autograd_node() if call.backward else None
        slices = node is not None and node.name() == SLICES  # which is numbered after what was written
        return Autograd(
            graph_task=call.graph_task,
            forward=None if node is None else self._numbers.get(node._sequence_nr() - slices),
            of_weights=any(
                one.requires_grad and (one if one._base is None else one._base).is_leaf for one in call.read
            ),
            slices=slices,
            unseen=not call.backward and not (grows and all(one.is_floating_point() for one in call.made)),
        )

    def _after(self, call: Call, caller: tuple[Line, ...]) -> tuple[set[Operation], int]:
        """``after`` and ``since`` of the operation; once its signature has shown what was changed unseen."""
        after, since = set[Operation](), 0
        for one in call.read:
            memory = self._of(one)
            writers = memory.writers[memory.overlapping(part_of_memory(one))]
            after.update(writers)
            if not writers:
                since = max(since, memory.since - self._before)
        floats = [one for one in call.arguments if isinstance(one, float)]
        if call.unfollowed or self._floats.setdefault((call.name, caller), floats) != floats:
            since = len(self.operations) - self._before
        return after, since

    def _of(self, tensor: Tensor) -> _Memory:
        number = number_of(tensor)
        if number not in self._memory:
            reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
            self._memory[number] = _Memory(reference, len(self.operations))
        return self._memory[number]

    def _alike(self, call: Call) -> float:
        """How many of the rows that it computes with are alike, not counting those of an embedding: words recur."""
        place = 0 if call.name == "convolution" else LEFT.get(call.name)
        if call.backward or place is None or place >= len(call.read):
            return 0.0
        writer = self._of(call.read[place]).writer
        return 0.0 if writer is not None and writer.of_words else alike_of(call.read[place])

    def _signature(self, call: Call) -> int:
        parts = [call.func, len(self.operations) if is_random(call.func) else None]
        for one in call.arguments:
            if is_followed(one):
                changed = any(one is each for each in call.changed)
                if changed and call.name == "native_batch_norm":  # these statistics are no part of its results
                    continue
                value = self._value(one, known=changed)
                parts.append((value, one.storage_offset(), one.shape, one.stride(), one.dtype))
            elif isinstance(one, Tensor):
                parts.append(len(self.operations))  # which is never the same
            else:
                parts.append((type(one), one) if isinstance(one, _VALUES) else id(one))
        return hash(tuple(parts))

    def _value(self, tensor: Tensor, *, known: bool) -> Any:
        """What tells whether it holds the same as before; a weight is taken for another one in each step.

        Args:
            known: Whether it is only equal to itself, however few numbers it holds, as what is changed.
        """
        memory = self._of(tensor)
        if memory.writer is not None:
            return memory.writer.signature, memory.place
        if tensor.requires_grad:
            return number_of(tensor), len(self.spent)
        held, part = digest(tensor), (tensor.storage_offset(), tensor.shape, tensor.stride())
        if memory.digests.setdefault(part, held) != held:  # by NumPy, say
            memory.digests[part], memory.since = held, len(self.operations)
        return number_of(tensor) if known or tensor.numel() > FEW else None, held

    def _sources(self, call: Call, forward: Operation | None, opened: Mapping[int, float]) -> list[Source]:
        sources = []
        replacing = call.name in _REPLACING or is_random(call.func)
        # Where a gradient, which a backward pass has first, or a gate was zero, activations are not needed.
        passed = 1 - zeros_of(call.read[0]) if call.backward and call.read else 1.0
        passed *= 1.0 if forward is None else forward.open
        for place, one in enumerate(call.read):
            memory, whole = self._of(one), room_of(one)
            share = min(1.0, one.numel() / whole) * opened.get(place, 1.0) if whole else 1.0
            kept = any(one is each for each in call.changed)  # what it leaves as it was is part of its results
            if memory.writer is None or (kept and replacing and share == 1):
                continue
            part = part_needed(call, place) if share == 1 or not kept else "all"
            region: range | None = part_of_memory(one)
            rows = width_of(one) == memory.width
            if memory.writer.name == "sort":
                share, region = _selected(one, memory.width), None
            elif whole and call.name in PICKING and not place and call.made:
                share, region = min(share, call.made[0].numel() / whole), None
                rows = rows and call.made[0].shape[-1:] == one.shape[-1:] and call.name != "gather"
            elif call.name in LOSSES and not place:
                share *= float((call.arguments[1] != call.arguments[4]).float().mean())  # of labels that count
            elif call.name in ("nll_loss_backward", "nll_loss2d_backward") and place == 1:
                share = 0.0  # no more than its shape
            if not memory.writer.backward:
                share *= passed
            sources.append(Source(memory.writer, 1.0 if kept else share, rows, part, region))
        return sources


def _adding() -> float:
    """Seconds of an operation on hardly any numbers."""
    tensor, times = torch.empty(1, device="cpu"), list[float]()
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(10):
            torch.add(tensor, tensor)
        times.append((time.perf_counter() - began) / 10)
    return min(times)


def _is_of_words(call: Call, sources: list[Source]) -> bool:
    """Whether its rows are those of an embedding, or follow from them row by row."""
    by_row = is_pointwise(call.func) or call.name == "native_layer_norm"
    return call.name == "embedding" or (by_row and any(one.operation.of_words for one in sources))


def _most_zeros(call: Call) -> tuple[float, list[int]]:
    """Their share in the large matrix that has most, and the shape of that."""
    large = [one for one in matrices_of(call) if one.numel() >= LARGE]
    return max(((zeros_of(one), list(one.shape)) for one in large), default=(0.0, []))


def _selected(tensor: Tensor, width: int) -> float:
    """The share of sorted rows of this width that torch.topk finds to have what a tensor takes of them."""
    first, count = tensor.storage_offset() % max(1, width), 1
    if tensor.ndim and tensor.stride(-1) == 1:
        count = tensor.shape[-1]
    return float(min(1.0, min(first + count, width - first) / max(1, width)))


_entered: "weakref.WeakSet[Dataflow]" = weakref.WeakSet()


def _leave_in_child() -> None:
    """Loader workers start as copies of this process, in the mode that its thread has entered."""
    for one in list(_entered):
        one.remove()


os.register_at_fork(after_in_child=_leave_in_child)
