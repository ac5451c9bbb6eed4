"""Which phase of a step is the innermost, and how long each took: in any training, with Lightning or without."""

import gc
import resource
import time
from abc import abstractmethod
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .columns import MAPPING, OWNED, PHASES
from .device_clock import DeviceClock

SAMPLED, SELDOM = 7, 29  # of so many steps one is asked for the CPU's time of each phase, which costs two system calls
# each; primes, so that steps with and without an update take part where gradients are accumulated. So is each one that
# follows a pause, such as a validation, in which loader workers may have been forked
MANY = 50 * SAMPLED  # steps, after which they are asked seldom
MOST_TOLD = 8  # optimizers: some trainings make new ones again and again
_CALLBACKS = PHASES.index("callbacks")


class Phases:
    """Follows which phase is the innermost: phases nest, and are disjoint and add up because only that one counts.

    The update is seen by torch's own hooks, whoever steps an optimizer.
    """

    def __init__(self) -> None:
        self.stack: list[str] = []  # of phases, the innermost last
        self.hooks: list[Any] = []  # torch's, while this follows
        self._thread = get_ident()  # that trains

    @abstractmethod
    def show(self, phase: str | None) -> None:
        """From now on this phase, or ``callbacks/<name>``, is the innermost; None: no phase."""

    def updated(self, optimizer: Any) -> None:
        """This optimizer has stepped."""

    def enter(self, phase: str) -> None:
        """A phase begins within the present one."""
        self.stack.append(phase)
        self.show(phase)

    def leave(self) -> None:
        """The innermost phase ends."""
        if self.stack:  # empty: entered before this watched
            self.stack.pop()
        self.show(self.stack[-1] if self.stack else None)

    def watch_updates(self, *, hooks: bool = True) -> None:
        """Begin to follow the thread that calls this, and what optimizers do in it.

        Without ``hooks`` the caller has some, which call ``before_update`` and ``after_update``.
        """
        self._thread = get_ident()
        if hooks:
            self.hooks = [
                register_optimizer_step_pre_hook(self.before_update),
                register_optimizer_step_post_hook(self.after_update),
            ]

    def forget(self) -> None:
        """Cease to follow; safe when it does not."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        self.stack = []

    def is_elsewhere(self) -> bool:
        """Whether this call is traced by torch.compile, or comes from another thread, which would mix up the phases."""
        return is_compiling() or get_ident() != self._thread

    def settle(self) -> None:
        """Forget phases that an error left open; only the one that calls this is running."""
        del self.stack[:-1]

    def before_update(self, *_: Any) -> Any:
        """An optimizer begins to step (torch's hook)."""
        if not self.is_elsewhere():
            self.enter("optimizer")

    def after_update(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has stepped (torch's hook)."""
        if not self.is_elsewhere():
            self.updated(optimizer)
            self.leave()


@dataclass(slots=True)
class Lap:
    """What happened between two moments: nanoseconds of each phase, and of each ``callbacks/<name>``."""

    spent: dict[str, int]
    updates: int = 0  # how often an optimizer stepped
    optimizers: int = 0  # which ones did: a bit for each, in the order in which they came; 0 of more than MOST_TOLD
    began: int = 0  # by time.perf_counter_ns
    collecting: int = 0  # of Python's garbage collection, within the phases but for those of callbacks
    computed: dict[str, int] | None = None  # by all threads of this process; None where it was not asked for
    alone: dict[str, int] = field(default_factory=dict)  # likewise, by the thread that trains
    kernel: float = 0.0  # likewise, core-seconds in the kernel in phases of ``MAPPING``
    faults: int = 0  # likewise, page faults
    waited: dict[str, int] = field(default_factory=dict)  # of what was spent, for other ranks

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of each of ``PHASES``."""
        return dict(zip(PHASES, by_phase(self.spent), strict=True))

    def owned(self, name: str) -> float:
        """Seconds of the hooks of one callback, logger or module."""
        return self.spent.get(OWNED + name, 0) / 1e9


class Clock(Phases):
    """Attributes each moment of a step to one phase.

    It is the host's time: on a GPU that is when work is submitted, not when it is done, which ``device`` tells.
    """

    def __init__(self, device: DeviceClock | None = None) -> None:
        super().__init__()
        self.device, self._optimizers = device, dict[int, int]()  # the place of each
        self._current = self._rest = "other"
        self._since = self._main_since = self._steps = self._collecting = 0
        self._begin(time.perf_counter_ns())

    def collect(self, watch: bool) -> None:
        """Time Python's garbage collection, or do so no more."""
        if watch and self._collects not in gc.callbacks:
            gc.callbacks.append(self._collects)
        elif not watch and self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)

    @property
    def phase(self) -> str:
        """The innermost phase now, or ``callbacks/<name>``."""
        return self._current

    @property
    def lasted(self) -> float:
        """Seconds since the innermost phase began, or was last interrupted."""
        return (time.perf_counter_ns() - self._since) / 1e9

    @property
    def updates(self) -> int:
        """How often an optimizer has stepped in this step."""
        return self._lap.updates

    def call(self, phase: str) -> None:
        """What runs now turns out to be this phase, since the one before it ended."""
        self._current = phase

    def restart(self, *, epoch: bool = False) -> Lap:
        """Begin a step now; what happened since the last one ended.

        At the start of an epoch Lightning makes its loader's iterator first, which waits for data under no name.
        """
        lap = self._end(ask=True)
        self._rest = "data_wait" if epoch else "other"
        if self.device is not None:
            self.device.restart()
        return lap

    def lap(self) -> Lap:
        """End a step, and begin the next one."""
        self._steps += 1
        lap = self._end()
        if self.device is not None:
            self.device.lap()
        return lap

    def show(self, phase: str | None) -> None:
        """Charge what has passed to the phase that ends."""
        if phase == self._current and phase != "data_wait":
            return
        now = time.perf_counter_ns()
        spent, current = self._spent, self._current
        spent[current] = spent.get(current, 0) + now - self._since
        self._since = now
        if self._lap.computed is not None:
            self._charge_cpu(self._lap.computed)
        self._current = phase or self._rest
        if phase == "data_wait":
            self._rest = "other"
        if self.device is not None:
            self.device.mark(phase)

    def updated(self, optimizer: Any) -> None:
        """Count an optimizer's step."""
        place = self._optimizers.setdefault(id(optimizer), len(self._optimizers))
        self._lap.updates += 1
        self._lap.optimizers |= 1 << place if place < MOST_TOLD else 0

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
        """This rank waits for the others no more."""
        if self._waiting:
            waited = self._lap.waited
            waited[self._current] = waited.get(self._current, 0) + time.perf_counter_ns() - self._waiting
            self._waiting = 0
        if self.device is not None:
            self.device.waited()

    def _end(self, *, ask: bool = False) -> Lap:
        self.settle()
        now, lap = time.perf_counter_ns(), self._lap
        lap.spent[self._current] = lap.spent.get(self._current, 0) + now - self._since
        if lap.computed is not None:
            self._charge_cpu(lap.computed)
        self._begin(now, ask=ask)
        return lap

    def _begin(self, now: int, *, ask: bool = False) -> None:
        self._spent: dict[str, int] = {}  # the lap's, at hand
        self._lap = Lap(self._spent, began=now)
        self._since, self._waiting = now, 0
        every = SAMPLED if self._steps < MANY else SELDOM
        if ask or self._steps % every == every // 2:
            self._lap.computed = {}
            self._used, self._main_since = resource.getrusage(resource.RUSAGE_SELF), self._thread_time_ns()

    def _charge_cpu(self, computed: dict[str, int]) -> None:
        alone, current = self._lap.alone, self._current
        now, before, main = resource.getrusage(resource.RUSAGE_SELF), self._used, self._thread_time_ns()
        kernel = now.ru_stime - before.ru_stime
        computed[current] = computed.get(current, 0) + round(1e9 * (now.ru_utime - before.ru_utime + kernel))
        alone[current] = alone.get(current, 0) + main - self._main_since
        if current in MAPPING:
            self._lap.kernel += kernel
            self._lap.faults += now.ru_minflt - before.ru_minflt
        self._used, self._main_since = now, main

    def _thread_time_ns(self) -> int:
        """Of the thread that trains, also when one of autograd's asks."""
        if get_ident() == self._thread:
            return time.thread_time_ns()
        return time.clock_gettime_ns(time.pthread_getcpuclockid(self._thread))

    def _collects(self, when: str, _: Any) -> None:
        """A collection starts or stops (``gc.callbacks``); one within a callback's hook is that callback's."""
        now = time.perf_counter_ns()
        if when == "start":
            self._collecting = 0 if self._current.startswith(OWNED) else now
        elif self._collecting:
            self._lap.collecting += now - self._collecting
            self._collecting = 0


def by_phase(spent: dict[str, int]) -> list[float]:
    """Nanoseconds of phases and of each ``callbacks/<name>`` as seconds of each of ``PHASES``, in their order."""
    parts = [spent.get(phase, 0) for phase in PHASES]
    parts[_CALLBACKS] = sum(spent.values()) - sum(parts)
    return [each / 1e9 for each in parts]
