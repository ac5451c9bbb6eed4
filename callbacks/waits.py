"""How long a rank waits for the others: at the end of a backward pass, and in other collectives."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from .clock import Clock, Lap, by_phase
from .columns import PHASES

_COLLECTIVES = (  # of a process group, by which its device waits; on a CPU it is what they return that waits
    *("allreduce", "reduce", "broadcast", "barrier", "gather", "scatter", "alltoall", "alltoall_base"),
    *("allgather", "_allgather_base", "all_gather_single", "allgather_into_tensor_coalesced"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single", "reduce_scatter_tensor_coalesced"),
)
_NONE = [0.0] * len(PHASES)


class Waits:
    """Tells a clock when this rank begins and ends to wait for the others.

    The autograd engine calls what is queued within a backward pass when all gradients are there, in the order of
    queueing. DistributedDataParallel queues its wait for the others when its last bucket is ready, which is after what
    is queued as the pass begins: between that and what that queues in turn lies the exposed wait, with no hook for
    each parameter. FSDP's own final callback lies there too. Other collectives that block, such as those of
    SyncBatchNorm, of ``self.log(..., sync_dist=True)``, of the broadcast of a module's buffers and of Lightning in each
    batch, end in ``Work.wait`` or in DDP's ``_broadcast_coalesced``, which are timed until ``remove``.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timed: list[tuple[Any, str, Any]] = []  # owner, name, and what stands there now
        self._passes = 0  # backward passes that were timed since the last step ended
        self._unix = time.time_ns() - time.perf_counter_ns()

    def install(self) -> None:
        """Begin to time collectives, if there is torch.distributed."""
        if not torch.distributed.is_available():
            return
        from torch._C._distributed_c10d import ProcessGroup, Work

        methods: list[tuple[Any, str]] = [(Work, "wait"), (torch.distributed, "_broadcast_coalesced")]
        if self._clock.device is not None:
            methods += [(ProcessGroup, name) for name in _COLLECTIVES]
        for owner, name in methods:
            if (was := vars(owner).get(name)) is not None:
                now = self._in_time(was)
                setattr(owner, name, now)
                self._timed.append((owner, name, now))

    def remove(self) -> None:
        """Restore everything, except what somebody else has replaced, such as another recorder."""
        for owner, name, now in self._timed:
            now.ended = True
            while hasattr(timed := vars(owner).get(name), "ended"):
                setattr(owner, name, timed.__wrapped__)
        self._timed = []

    def watch(self, loss: Any) -> None:
        """Time the wait at the end of this loss's backward pass, which is about to begin."""
        if isinstance(loss, Tensor) and loss.requires_grad:
            hook: Any = loss.register_hook(lambda _: self._begins(hook))  # type: ignore[no-untyped-call]

    def begin(self, then: Callable[[], None] | None = None) -> None:
        """Within a backward pass: time the wait at its end, and call ``then``."""
        _queue(partial(self._last_gradient, then))

    def of(self, lap: Lap, elements: int | None) -> Sequence[Any]:
        """``RANKS`` of a step that has ended, whose batch has so many elements.

        If no hook reported a backward pass, its wait is unknown.
        """
        passes, self._passes = self._passes, 0
        waits: list[Any] = by_phase(lap.waited) if lap.waited else _NONE
        exposed = sum(waits) if passes or not lap.updates else None
        return [exposed, *waits, elements, f"{(self._unix + lap.began) / 1e9:.6f}"]

    def _begins(self, hook: Any) -> None:
        """Within the backward pass: ask to be called when the last local gradient is there."""
        with suppress(Exception):  # which would be the training's
            hook.remove()  # the loss is the user's
            self.begin()

    def _last_gradient(self, then: Callable[[], None] | None) -> None:
        with suppress(Exception):
            self._clock.wait()
            _queue(partial(self._all_gradients, then))  # behind those who wait for the others

    def _all_gradients(self, then: Callable[[], None] | None) -> None:
        with suppress(Exception):
            self._clock.waited()
            self._passes += 1
            if then is not None:
                then()

    def _in_time(self, collective: Callable[..., Any]) -> Any:
        clock = self._clock

        @wraps(collective)
        def timed(*given: Any, **named: Any) -> Any:
            if clock.waiting or clock.is_elsewhere():
                return collective(*given, **named)
            clock.wait()
            try:
                return collective(*given, **named)
            finally:
                clock.waited()

        return timed


def _queue(work: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(work)
