"""The phases of a step, from the actions that Lightning reports to its profiler; and a clock of them."""

import time
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.profilers import Profiler

PHASES = ("data_wait", "transfer", "forward", "backward", "optimizer", "callbacks", "other")
_BEFORE_BACKWARD, _AFTER_BACKWARD = "before backward", "after backward"


class PhaseWatch(Profiler):
    """Stands in for ``trainer.profiler``, passes each action on to it, and follows which phase is the innermost.

    Lightning names what it does: ``[_TrainingEpochLoop].train_dataloader_next``,
    ``[Strategy]SingleDeviceStrategy.backward``, ``[Callback]ModelCheckpoint.on_train_batch_end`` and so on.
    Actions nest (with automatic optimization, forward and backward run inside the optimizer's closure); the
    innermost known one counts, so that the phases are disjoint and add up. With manual optimization Lightning
    reports no backward, but the hooks before and after it.
    """

    def __init__(self, inner: Profiler) -> None:
        super().__init__()
        self.inner = inner
        self._stack: list[str] = []
        self._known: dict[str, str | None] = {}
        self._by_hand = False

    @abstractmethod
    def show(self, phase: str | None) -> None:
        """From now on this phase is the innermost, or none is."""

    def ignore_idle_hooks(self, callbacks: Iterable[Callback]) -> None:
        """Let hooks that do nothing, which Lightning reports for every callback, not interrupt a phase."""
        self._known |= dict.fromkeys(_idle_hooks(callbacks))

    def start(self, action_name: str) -> None:
        """Enter an action."""
        self.inner.start(action_name)
        phase = self._phase(action_name)
        if phase == _AFTER_BACKWARD and self._by_hand:
            self._by_hand = False
            self._leave()
        elif phase in PHASES:
            self._enter(phase)

    def stop(self, action_name: str) -> None:
        """Leave an action."""
        phase = self._phase(action_name)
        if phase == _BEFORE_BACKWARD and "backward" not in self._stack:
            self._by_hand = True
            self._enter("backward")
        elif phase in PHASES:
            self._leave()
        self.inner.stop(action_name)

    def summary(self) -> str:
        """The wrapped profiler's."""
        return self.inner.summary()

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Passed on."""
        self.inner.setup(*args, **kwargs)

    def describe(self) -> None:
        """Passed on."""
        self.inner.describe()

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Passed on."""
        self.inner.teardown(*args, **kwargs)

    def _enter(self, phase: str) -> None:
        self._stack.append(phase)
        self.show(phase)

    def _leave(self) -> None:
        if self._stack:  # empty: entered before this watched
            self._stack.pop()
        self.show(self._stack[-1] if self._stack else None)

    def _phase(self, action: str) -> str | None:
        if action not in self._known:
            self._known[action] = phase_of(action)
        return self._known[action]


class PhaseClock(PhaseWatch):
    """Attributes each moment of a step to one phase.

    It is the host's time: on a GPU that is when work is submitted, not when it is done.
    """

    def __init__(self, inner: Profiler) -> None:
        super().__init__(inner)
        self._current = "other"
        self.restart()

    def restart(self) -> None:
        """Begin a step now."""
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._since = time.perf_counter()

    def lap(self) -> dict[str, float]:
        """Seconds of each phase since the step began; begins the next one."""
        self.show(self._current)
        seconds, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return seconds

    def show(self, phase: str | None) -> None:
        """Charge what has passed to the phase that ends."""
        now = time.perf_counter()
        self._seconds[self._current] += now - self._since
        self._since = now
        self._current = phase or "other"


def phase_of(action: str) -> str | None:
    """The phase that one of Lightning's action names belongs to; None for one that only contains others."""
    owner, _, name = action.rpartition(".")
    if owner.startswith("[Callback]"):
        return "callbacks"
    if owner.startswith("[Strategy]"):
        return {"batch_to_device": "transfer", "training_step": "forward", "backward": "backward"}.get(name)
    if owner.startswith("[LightningModule]"):
        return {
            "optimizer_step": "optimizer",
            "optimizer_zero_grad": "optimizer",
            "on_before_backward": _BEFORE_BACKWARD,
            "on_after_backward": _AFTER_BACKWARD,
        }.get(name)
    if action == "optimizer_step":  # manual optimization
        return "optimizer"
    return "data_wait" if action == "[_TrainingEpochLoop].train_dataloader_next" else None


def _idle_hooks(callbacks: Iterable[Callback]) -> set[str]:
    """Actions of hooks that no callback of that name overrides."""
    idle, busy = set[str](), set[str]()
    for callback in callbacks:
        for hook in dir(Callback):
            inherited = getattr(getattr(callback, hook), "__func__", callback) is getattr(Callback, hook)
            (idle if inherited else busy).add(f"[Callback]{callback.state_key}.{hook}")
    return idle - busy
