"""The phases of a step, from the actions that Lightning reports to its profiler, and how long each took."""

import gc
import time
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, update_wrapper
from threading import get_ident
from types import MethodType
from typing import Any

from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .columns import OWNED, PHASES
from .device_clock import DeviceClock
from .lightnings import PassThroughProfiler, Profiler
from .owners import (
    AROUND_BACKWARD,
    BETWEEN_HOOKS,
    CLIPPING,
    MODULE_HOOKS,
    SCHEDULER,
    around_backward,
    class_of,
    idle_hooks,
    names,
)

_BEFORE_BACKWARD, _AFTER_BACKWARD = AROUND_BACKWARD
_OF_STRATEGY = {"batch_to_device": "transfer", "training_step": "forward", "backward": "backward"}
_OF_MODULE = {
    "optimizer_step": "optimizer",
    "optimizer_zero_grad": "optimizer",
    "on_before_backward": _BEFORE_BACKWARD,
    "on_after_backward": _AFTER_BACKWARD,
    "configure_gradient_clipping": OWNED + CLIPPING,
    "lr_scheduler_step": OWNED + SCHEDULER,
}
_NO_PHASE = nullcontext()
SAMPLED = 7  # of so many steps one is asked for the CPU's time of each phase, which costs a system call each;
# a prime, so that steps with and without an update take part where gradients are accumulated


class PhaseWatch(Profiler):
    """Stands in for ``trainer.profiler``, passes each action on to it, and follows which phase is the innermost.

    Lightning names what it does: ``[_TrainingEpochLoop].train_dataloader_next``,
    ``[Strategy]SingleDeviceStrategy.backward``, ``[Callback]ModelCheckpoint.on_train_batch_end`` and so on.
    Actions nest (with automatic optimization, forward and backward run inside the optimizer's closure); the
    innermost known one counts, so that the phases are disjoint and add up. A hook is told apart by whose it is, as
    ``callbacks/<name>``. With manual optimization Lightning reports no backward, but the hooks before and after it;
    an optimizer that a module steps without Lightning's knowledge is seen by torch's own hooks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inner: Any = PassThroughProfiler()  # then the trainer's own, of either Lightning
        self._passes = False  # whether it gets the actions, too
        self._stack: list[str] = []
        self._known = _Actions({}, {})
        self._by_hand = False
        self._module, self._around = "", set[str]()  # whose hooks around the backward pass are timed, and which
        self._hooks: list[Any] = []
        self._thread = get_ident()  # that trains

    def __getattr__(self, name: str) -> Any:
        """What a script asks its own profiler for, such as ``recorded_durations``."""
        if name == "inner":  # not set yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    @abstractmethod
    def show(self, phase: str | None) -> None:
        """From now on this phase, or ``callbacks/<name>``, is the innermost; None: no phase."""

    def updated(self) -> None:
        """An optimizer has stepped."""

    def install(self, trainer: Any) -> None:
        """Begin to watch; does nothing when it does already."""
        if trainer.profiler is self:
            return
        # Kept after `remove`, which happens within an action that is still to be passed on when it stops.
        self.inner, trainer.profiler = trainer.profiler, self
        self._thread = get_ident()
        self._passes = type(self.inner).__name__ != "PassThroughProfiler"
        # Lightning reports also hooks that do nothing: they interrupt no phase.
        idle, module = dict.fromkeys(idle_hooks(trainer)), trainer.lightning_module
        self._module, self._around = OWNED + type(module).__name__, around_backward(module)
        self._known = _Actions(idle, names(trainer.callbacks))
        self._hooks = [
            register_optimizer_step_pre_hook(self._before_update),
            register_optimizer_step_post_hook(self._after_update),
        ]

    def remove(self, trainer: Any) -> None:
        """Cease to watch; safe when it does not."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._stack = []
        self._by_hand = False
        if trainer.profiler is self:
            trainer.profiler = self.inner

    def profile(self, action_name: str) -> AbstractContextManager[Any]:  # type: ignore[override]
        """An action from here to the end of the block; in a fifth of the time that Lightning's own takes."""
        if self._passes:
            return super().profile(action_name)
        return _NO_PHASE if self._known[action_name] is None else _Action(self, action_name)

    def start(self, action_name: str) -> None:
        """Enter an action."""
        if self._passes:
            self.inner.start(action_name)
        phase = self._known[action_name]
        if phase is None:
            return
        if phase == _AFTER_BACKWARD and self._by_hand:
            self._by_hand = False
            self._leave()
        if phase not in AROUND_BACKWARD:
            self._enter(phase)
        elif phase in self._around:
            self._enter(self._module)

    def stop(self, action_name: str) -> None:
        """Leave an action."""
        phase = self._known.get(action_name)
        if phase is not None and (phase not in AROUND_BACKWARD or phase in self._around):
            self._leave()
        if phase == _BEFORE_BACKWARD and "backward" not in self._stack:
            self._by_hand = True
            self._enter("backward")
        if self._passes:
            self.inner.stop(action_name)

    def is_elsewhere(self) -> bool:
        """Whether this call is traced by torch.compile, or comes from another thread, which would mix up the phases."""
        return is_compiling() or get_ident() != self._thread

    def settle(self) -> None:
        """Forget actions that an error left open; only the hook that calls this is running."""
        del self._stack[:-1]
        self._by_hand = False

    def summary(self) -> str:
        """The wrapped profiler's."""
        return str(self.inner.summary())

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Passed on."""
        self.inner.setup(*args, **kwargs)

    def describe(self) -> None:
        """Passed on."""
        self.inner.describe()

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Passed on."""
        self.inner.teardown(*args, **kwargs)

    def _before_update(self, *_: Any) -> None:
        if not self.is_elsewhere():
            self._enter("optimizer")

    def _after_update(self, *_: Any) -> None:
        if not self.is_elsewhere():
            self._leave(updated=True)

    def _enter(self, phase: str) -> None:
        self._stack.append(phase)
        self.show(phase)

    def _leave(self, *, updated: bool = False) -> None:
        if updated:
            self.updated()
        if self._stack:  # empty: entered before this watched
            self._stack.pop()
        self.show(self._stack[-1] if self._stack else None)


class _Action:
    """An action that is watched, as a block."""

    __slots__ = ("name", "watch")

    def __init__(self, watch: PhaseWatch, name: str) -> None:
        self.watch = watch
        self.name = name

    def __enter__(self) -> None:
        self.watch.start(self.name)

    def __exit__(self, *_: object) -> None:
        self.watch.stop(self.name)


class _Actions(dict[str, str | None]):
    """The phase of each of Lightning's actions, learnt when it is first asked for; None for one that holds others."""

    def __init__(self, known: dict[str, str | None], names: dict[str, str]) -> None:
        super().__init__(known)
        self._names = names  # of callbacks, by their state keys

    def __missing__(self, action: str) -> str | None:
        phase = self[action] = self._phase_of(action)
        return phase

    def _phase_of(self, action: str) -> str | None:
        owner, _, hook = action.rpartition(".")
        kind, _, name = owner.partition("]")
        if kind == "[Callback":
            return OWNED + self._names.get(name, class_of(name))
        if kind == "[Strategy":
            return _OF_STRATEGY.get(hook)
        if kind == "[LightningModule":
            return OWNED + name if hook in (*MODULE_HOOKS, *BETWEEN_HOOKS) else _OF_MODULE.get(hook)
        if action == "optimizer_step":  # manual optimization
            return "optimizer"
        return "data_wait" if action == "[_TrainingEpochLoop].train_dataloader_next" else None


@dataclass(frozen=True)
class Lap:
    """What happened between two moments: nanoseconds of each phase, and of each ``callbacks/<name>``."""

    spent: dict[str, int]
    updates: int  # how often an optimizer stepped
    computed: dict[str, int] | None = None  # by all threads of this process; None where it was not asked for
    alone: dict[str, int] | None = None  # likewise, by the thread that trains
    collecting: float = 0.0  # seconds of Python's garbage collection, within the phases but for those of callbacks
    waited: dict[str, int] = field(default_factory=dict)  # for other ranks, of what was spent
    began: int = 0  # by time.perf_counter_ns

    @cached_property
    def phases(self) -> dict[str, float]:
        """Seconds of each of ``PHASES``."""
        return _by_phase(self.spent)

    @property
    def cpu(self) -> dict[str, float] | None:
        """Core-seconds of this process in each of ``PHASES``."""
        return None if self.computed is None else _by_phase(self.computed)

    @property
    def main(self) -> dict[str, float] | None:
        """Core-seconds of the thread that trains in each of ``PHASES``."""
        return None if self.computed is None else _by_phase(self.alone or {})

    @property
    def waits(self) -> dict[str, float]:
        """Seconds in which this rank waits for the others, in each of ``PHASES``."""
        return _by_phase(self.waited)

    def owned(self, name: str) -> float:
        """Seconds of the hooks of one callback, logger or module."""
        return self.spent.get(OWNED + name, 0) / 1e9


class PhaseClock(PhaseWatch):
    """Attributes each moment of a step to one phase.

    It is the host's time: on a GPU that is when work is submitted, not when it is done, which ``device`` tells.
    """

    def __init__(self, device: DeviceClock | None = None) -> None:
        super().__init__()
        self.device = device
        self._watched: list[tuple[Any, str, Any]] = []  # objects, methods, and what objects themselves had for them
        self._current = self._rest = "other"
        self._since = self._cpu_since = self._main_since = self._steps = self._collecting = 0
        self._begin(time.perf_counter_ns())

    def install(self, trainer: Any) -> None:
        """Begin to watch; does nothing when it does already."""
        super().install(trainer)
        if self._collects not in gc.callbacks:
            gc.callbacks.append(self._collects)

    def restart(self, *, epoch: bool = False) -> Lap:
        """Begin a step now; what happened since the last one ended.

        At the start of an epoch Lightning makes its loader's iterator first, which waits for data under no name.
        """
        lap = self._lap()
        self._rest = "data_wait" if epoch else "other"
        if self.device is not None:
            self.device.restart()
        return lap

    def lap(self) -> Lap:
        """End a step, and begin the next one."""
        self._steps += 1
        lap = self._lap()
        if self.device is not None:
            self.device.lap()
        return lap

    def show(self, phase: str | None) -> None:
        """Charge what has passed to the phase that ends."""
        now = time.perf_counter_ns()
        spent, current = self._spent, self._current
        spent[current] = spent.get(current, 0) + now - self._since
        self._since = now
        if self._computed is not None:
            self._charge_cpu(self._computed)
        self._current = phase or self._rest
        if phase == "data_wait":
            self._rest = "other"
        if self.device is not None:
            self.device.mark(phase)

    def updated(self) -> None:
        """Count an optimizer's step."""
        self._updates += 1

    @property
    def waiting(self) -> bool:
        """Whether this rank waits for the others."""
        return self._waiting > 0

    def wait(self) -> None:
        """From here to `waited` this rank waits for the others, within the current phase."""
        self._waiting = time.perf_counter_ns()
        if self.device is not None:
            self.device.wait()

    def waited(self) -> None:
        """It waits no more."""
        if self._waiting:
            spent = time.perf_counter_ns() - self._waiting
            self._waited[self._current] = self._waited.get(self._current, 0) + spent
            self._waiting = 0
        if self.device is not None:
            self.device.waited()

    def watch_calls(self, objects: Iterable[Any], *methods: str) -> None:
        """Let the time of such calls be that of the object's class, which Lightning does not report: until `remove`."""
        for owner in objects:
            for method in methods:
                self._watched.append((owner, method, vars(owner).get(method)))
                setattr(owner, method, _Charged(self, owner, method))

    def remove(self, trainer: Any) -> None:
        """Cease to watch; safe when it does not."""
        super().remove(trainer)
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)
        for owner, method, own in self._watched:
            vars(owner).pop(method, None)
            if own is not None:
                setattr(owner, method, own)
        self._watched = []

    def _lap(self) -> Lap:
        self.settle()
        now = time.perf_counter_ns()
        self._spent[self._current] = self._spent.get(self._current, 0) + now - self._since
        if self._computed is not None:
            self._charge_cpu(self._computed)
        lap = Lap(
            *(self._spent, self._updates, self._computed, self._alone, self._collected / 1e9),
            waited=self._waited,
            began=self._began,
        )
        self._begin(now)
        return lap

    def _begin(self, now: int) -> None:
        self._spent: dict[str, int] = {}
        self._waited: dict[str, int] = {}
        self._updates = self._collected = self._waiting = 0
        self._since = self._began = now
        self._computed: dict[str, int] | None = None
        self._alone: dict[str, int] = {}
        if self._steps % SAMPLED == SAMPLED // 2:
            self._computed, self._cpu_since = {}, time.process_time_ns()
            self._main_since = time.thread_time_ns()

    def _charge_cpu(self, computed: dict[str, int]) -> None:
        alone, current = self._alone, self._current
        now, main = time.process_time_ns(), time.thread_time_ns()
        computed[current] = computed.get(current, 0) + now - self._cpu_since
        alone[current] = alone.get(current, 0) + main - self._main_since
        self._cpu_since, self._main_since = now, main

    def _collects(self, when: str, _: Any) -> None:
        """A collection starts or stops (``gc.callbacks``); one within a callback's hook is that callback's."""
        now = time.perf_counter_ns()
        if when == "start":
            self._collecting = 0 if self._current.startswith(OWNED) else now
        elif self._collecting:
            self._collected += now - self._collecting
            self._collecting = 0


def _by_phase(spent: dict[str, int]) -> dict[str, float]:
    """Nanoseconds as seconds of each phase."""
    seconds = {phase: spent.get(phase, 0) / 1e9 for phase in PHASES}
    seconds["callbacks"] = sum(each for name, each in spent.items() if name.startswith(OWNED)) / 1e9
    return seconds


class _Charged:
    """A method whose time is its owner's; what copies or pickles the owner gets the method as it was."""

    def __init__(self, clock: PhaseClock, owner: Any, name: str) -> None:
        update_wrapper(self, method := getattr(owner, name))
        self._clock, self._owner, self._name, self._own = clock, owner, name, vars(owner).get(name)
        self._method, self._phase = method, OWNED + type(owner).__name__

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._clock.is_elsewhere():
            return self._method(*arguments, **named)
        self._clock._enter(self._phase)
        try:
            return self._method(*arguments, **named)
        finally:
            self._clock._leave()

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_it_was, (self._owner, self._name, self._own)


def _as_it_was(owner: Any, name: str, own: Any) -> Any:
    return own or MethodType(getattr(type(owner), name), owner)
