"""How long each phase of a step took."""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lightning.pytorch.profilers import PassThroughProfiler, Profiler

from .columns import OWNED, PHASES
from .device_clock import DeviceClock
from .phases import PhaseWatch

SAMPLED = 7  # of so many steps one is asked for the CPU's time of each phase, which costs a system call each;
# a prime, so that steps with and without an update take part where gradients are accumulated


@dataclass(frozen=True)
class Lap:
    """What happened between two moments: nanoseconds of each phase, and of each ``callbacks/<name>``."""

    spent: dict[str, int]
    updates: int  # how often an optimizer stepped
    computed: dict[str, int] | None = None  # by all threads of this process; None where it was not asked for

    @cached_property
    def phases(self) -> dict[str, float]:
        """Seconds of each of ``PHASES``."""
        return _by_phase(self.spent)

    @property
    def cpu(self) -> dict[str, float] | None:
        """Core-seconds of this process in each of ``PHASES``."""
        return None if self.computed is None else _by_phase(self.computed)

    def owned(self, name: str) -> float:
        """Seconds of the hooks of one callback, logger or module."""
        return self.spent.get(OWNED + name, 0) / 1e9


class PhaseClock(PhaseWatch):
    """Attributes each moment of a step to one phase.

    It is the host's time: on a GPU that is when work is submitted, not when it is done, which ``device``, if there
    is one, tells.
    """

    def __init__(self, inner: Profiler | None = None, *, device: DeviceClock | None = None) -> None:
        super().__init__(inner or PassThroughProfiler())
        self.device = device
        self._loggers: list[Any] = []
        self._current = self._rest = "other"
        self._since = self._cpu_since = self._steps = 0
        self._begin(time.perf_counter_ns())

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

    def watch_loggers(self, loggers: list[Any]) -> None:
        """Let the time that loggers take be theirs, which Lightning does not report, until :meth:`remove`."""
        self._loggers = loggers
        for logger in loggers:
            for method in ("log_metrics", "save"):
                setattr(logger, method, self._charged(getattr(logger, method), OWNED + type(logger).__name__))

    def remove(self, trainer: Any) -> None:
        """Cease to watch; safe when it does not."""
        super().remove(trainer)
        for logger in self._loggers:
            for method in ("log_metrics", "save"):
                vars(logger).pop(method, None)
        self._loggers = []

    def _charged(self, method: Any, owner: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self._enter(owner)
            try:
                return method(*arguments, **named)
            finally:
                self._leave()

        return call

    def _lap(self) -> Lap:
        self.settle()
        now = time.perf_counter_ns()
        self._spent[self._current] = self._spent.get(self._current, 0) + now - self._since
        if self._computed is not None:
            self._charge_cpu(self._computed)
        lap = Lap(self._spent, self._updates, self._computed)
        self._begin(now)
        return lap

    def _begin(self, now: int) -> None:
        self._spent: dict[str, int] = {}
        self._updates = 0
        self._since = now
        self._computed: dict[str, int] | None = None
        if self._steps % SAMPLED == SAMPLED // 2:
            self._computed, self._cpu_since = {}, time.process_time_ns()

    def _charge_cpu(self, computed: dict[str, int]) -> None:
        now = time.process_time_ns()
        computed[self._current] = computed.get(self._current, 0) + now - self._cpu_since
        self._cpu_since = now


def _by_phase(spent: dict[str, int]) -> dict[str, float]:
    """Nanoseconds as seconds of each phase."""
    seconds = {phase: spent.get(phase, 0) / 1e9 for phase in PHASES}
    seconds["callbacks"] = sum(each for name, each in spent.items() if name.startswith(OWNED)) / 1e9
    return seconds
