"""The phases of a training loop that a script writes itself; knows nothing of Lightning."""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .clock import Clock, Phases
from .ranges import Ranges
from .schedule import Schedule
from .trace_writer import Budget, TraceWriter
from .tracer import Tracing
from .waits import Waits

LEARN = 3  # steps whose gradients tell which parameter's comes first


class LoopPhases(Phases):
    """Tells a clock, and a trace's ranges, which phase of a loop runs, by torch's own hooks.

    The update is what an optimizer's hooks enclose; a closure that it calls computes. A backward pass reaches from its
    call, or from a parameter's first gradient where that is not seen, to the end of autograd's work. What lies before
    it is ``forward``, with whatever else the script does there; what follows the last backward pass or update of a step
    is ``other``. Where no gradient is ever seen, ``passes`` stays 0, and ``forward`` holds the backward pass.

    Args:
        clock: What measures the phases.
        named: The optimizers whose updates count; None for all in this thread.
        may_update: Asked before each update, with the optimizer: whether it belongs to this training.
        waits: Of one of several ranks, to be told of backward passes.

    Attributes:
        failure: An error of this class's own, after which it does nothing more. It is kept from the script.
    """

    def __init__(
        self,
        clock: Clock,
        named: Sequence[Any] | None,
        may_update: Callable[[Any], bool],
        waits: Waits | None = None,
    ) -> None:
        super().__init__()
        self.parts: list[Any] = [clock]  # and ranges, while steps are traced
        self.passes = self.updates = self.learned = 0  # backward passes, updates and optimizers so far
        # Each that was seen, and how many backward passes there were before its latest update.
        self.optimizers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.failure: Exception | None = None  # hooks cannot be removed while torch calls them
        self._clock, self._may_update, self._waits = clock, may_update, waits
        self._named = None if named is None else weakref.WeakSet(named)
        self._parameters: dict[int, weakref.ref[Any]] = {}  # of the optimizers, by identity
        self._gradients: dict[int, Any] = {}  # hooks of parameters
        self._first: set[int] = set()  # parameters whose gradient came first in a backward pass
        self._sees_calls = False  # of ``backward``, which tell when it begins
        self._watched, self._missed = 0, False  # steps with hooks on all parameters; an update without a backward pass

    def watch_updates(self, *, hooks: bool = True) -> None:
        """Begin to follow the thread that calls this."""
        super().watch_updates(hooks=hooks)
        for optimizer in self._named or ():
            self._learn(optimizer)

    def show(self, phase: str | None) -> None:
        """From now on this phase runs."""
        for part in self.parts:
            part.show(phase)

    def change(self, phase: str | None) -> None:
        """From now on this phase runs, and none around it."""
        self.stack = [phase] if phase else []
        self.show(phase)

    def end_step(self) -> None:
        """The step is over; what its hooks have told decides which ones are needed."""
        if self._watched < LEARN:
            self._watched += bool(self._first) or self._sees_calls
            if self._watched == LEARN:
                self._unhook(keep=self._first)
        elif self._missed:  # other parameters are trained now
            self._watched = 0
            self._first.clear()
            for optimizer in list(self.optimizers):
                self._learn(optimizer)
        self._missed = False

    @property
    def computed(self) -> bool:
        """Whether the step has got beyond its forward pass; the latest backward pass or update is over."""
        return not self.stack

    def forget(self) -> None:
        """Remove every hook; safe to call twice."""
        super().forget()
        self._unhook(keep=set())

    def knows(self, optimizer: Any) -> bool:
        """Whether an optimizer was seen, or trains the parameters of one that was."""
        known = ((parameter, self._parameters.get(id(parameter))) for parameter in parameters_of(optimizer))
        return optimizer in self.optimizers or any(ref is not None and ref() is parameter for parameter, ref in known)

    def before_update(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An optimizer begins to step; its closure, if it has one, is replaced by one that is timed."""
        try:
            if not self._counts(optimizer) or not self._may_update(optimizer):
                return None
            if optimizer not in self.optimizers:
                self._learn(optimizer)
                if self._watched == LEARN:
                    self._watched = 0  # its parameters' hooks are to be thinned out, too
            elif self.optimizers[optimizer] == self.passes:
                self._missed = True
            if self.stack[-1:] == ["forward"]:
                self.stack.pop()
            self.enter("optimizer")
            if callable(kwargs.get("closure")):
                return args, kwargs | {"closure": self._timed(kwargs["closure"])}
            if len(args) > 1 and callable(args[1]):
                return (args[0], self._timed(args[1]), *args[2:]), kwargs
        except Exception as error:
            self.failure = error
        return None

    def after_update(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has stepped."""
        try:
            if self._counts(optimizer) and "optimizer" in self.stack:
                self.leave_until("optimizer")
                self._clock.updated(optimizer)
                self.updates += 1
                self.optimizers[optimizer] = self.passes
        except Exception as error:
            self.failure = error

    def _counts(self, optimizer: Any) -> bool:
        mine = self.failure is None and not self.is_elsewhere()
        return mine and (self._named is None or optimizer in self._named)

    def _timed(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def computing() -> Any:
            self.enter("forward")
            depth = len(self.stack)
            try:
                return closure()
            finally:
                while len(self.stack) >= depth:
                    self.leave()

        return computing

    def _learn(self, optimizer: Any) -> None:
        """Let each parameter of an optimizer say when its gradient is there."""
        if optimizer not in self.optimizers:
            self.optimizers[optimizer] = -1
            self.learned += 1
        for parameter in parameters_of(optimizer):
            key = id(parameter)
            if key not in self._parameters and not _may_be_swapped(parameter):
                self._parameters[key] = weakref.ref(parameter, partial(self._lost, key))
            if parameter.requires_grad and parameter.is_leaf and key not in self._gradients:
                self._gradients[key] = parameter.register_post_accumulate_grad_hook(self._gradient)

    def _lost(self, key: int, _: Any) -> None:
        """A parameter is gone; another one may get its identity."""
        self._parameters.pop(key, None)
        self._gradients.pop(key, None)
        self._first.discard(key)

    def _unhook(self, *, keep: set[int]) -> None:
        for key in self._gradients.keys() - keep:
            if hook := self._gradients.pop(key, None):
                hook.remove()

    def _gradient(self, parameter: Any) -> None:
        """A gradient is there: torch's hook, on a GPU in a thread of autograd's while the script waits for it."""
        if self.failure or is_compiling():
            return
        try:
            if "backward" not in self.stack:
                self._begin_backward(parameter)
        except Exception as error:
            self.failure = error

    def _begin_backward(self, parameter: Any) -> None:
        if self._waits is None:
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
        else:
            self._waits.begin(self._end_backward)
        self._first.add(id(parameter))
        self.begin_backward()

    def calls_backward(self) -> None:
        """A call of ``backward`` begins, which ``leave_until`` ends; of several ranks a first gradient tells."""
        if self._waits is None and "backward" not in self.stack:
            self._sees_calls = True
            self.begin_backward()

    def begin_backward(self) -> None:
        """A backward pass begins, which ``leave_until`` ends."""
        self.passes += 1
        if self.stack[-1:] == ["forward"]:
            self.stack.pop()
        elif not self.stack:  # after an update, or another backward pass
            self._clock.call("forward")
        self.enter("backward")

    def _end_backward(self) -> None:
        try:
            self.leave_until("backward")
        except Exception as error:
            self.failure = error

    def leave_until(self, phase: str) -> None:
        """Leave a phase, with those in it that an error left open."""
        while phase in self.stack:
            self.leave()


class LoopTrace(Tracing):
    """torch.profiler over the steps of a loop: traces, and tables of operators when it is over."""

    def __init__(self, directory: Path, tables: Path, schedule: Schedule, loader: Any, device: torch.device) -> None:
        super().__init__(Ranges())
        directory.mkdir(parents=True, exist_ok=True)
        self._tables = tables
        self.loading.open(schedule)
        options = {"record_shapes": True, "profile_memory": False, "with_stack": False, "with_flops": False}
        writer = TraceWriter(directory, [], Budget(None, schedule.active))
        self.start(schedule, options, device, loader, writer=writer)
        self.ranges.paused = not self.recording

    def end_step(self) -> None:
        """End the step, and write the trace of a finished cycle."""
        if self.tracer is None:
            return
        self.tracer.step(self.ranges.boundary())
        self.ranges.paused = not self.recording
        if self.tracer.done:
            self.finish()

    def finish(self, *, failed: bool = False) -> None:
        """Write what is left; a second time does nothing."""
        if (tracer := self.tracer) is None:
            return
        self.stop(self.ranges.boundary(), failed=failed)
        self.ranges.paused = True
        self.loading.close()
        if tracer.steps and tracer.operators is not None:
            tracer.operators.write(self._tables)

    def abandon(self) -> None:
        """Stop, whatever state an error left, and write nothing."""
        super().abandon()
        self.loading.close()


def parameters_of(optimizer: Any) -> list[Any]:
    """What an optimizer trains; nothing of one that is not torch's."""
    return [parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]]


def _may_be_swapped(parameter: Any) -> bool:
    """Whether `torch.utils.swap_tensors` may be called on it, which refuses what has weak references."""
    return bool(is_traceable_wrapper_subclass(parameter) or torch.__future__.get_swap_module_params_on_conversion())
