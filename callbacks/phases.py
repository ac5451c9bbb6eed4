"""A clock that attributes each moment of a step to one phase, fed by Lightning's own profiler hooks."""

import time
from typing import Any

from lightning.pytorch.profilers import Profiler

PHASES = ("data_wait", "transfer", "forward", "backward", "optimizer", "callbacks", "other")


class PhaseClock(Profiler):
    """Stands in for ``trainer.profiler``, passes each action on to it, and times the actions it knows.

    Lightning names what it does: ``[_TrainingEpochLoop].train_dataloader_next``,
    ``[Strategy]SingleDeviceStrategy.backward``, ``[Callback]ModelCheckpoint.on_train_batch_end`` and so on.
    Actions nest (with automatic optimization, forward and backward run inside the optimizer's closure): time
    goes to the innermost known one, so that the phases are disjoint and add up. It is the host's time: on a GPU
    that is when work is submitted, not when it is done. With manual optimization Lightning reports no action for
    the optimizer's own step, which then counts as forward.
    """

    def __init__(self, inner: Profiler) -> None:
        super().__init__()
        self.inner = inner
        self._open: list[str] = ["other"]
        self._known: dict[str, str | None] = {}
        self.restart()

    def restart(self) -> None:
        """Begin a step now."""
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._since = time.perf_counter()

    def lap(self) -> dict[str, float]:
        """Seconds of each phase since the step began; begins the next one."""
        self._charge()
        seconds, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return seconds

    def start(self, action_name: str) -> None:
        """Enter an action."""
        self.inner.start(action_name)
        if (phase := self._phase(action_name)) is not None:
            self._charge()
            self._open.append(phase)

    def stop(self, action_name: str) -> None:
        """Leave an action."""
        if self._phase(action_name) is not None:
            self._charge()
            self._open.pop()
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

    def _charge(self) -> None:
        now = time.perf_counter()
        self._seconds[self._open[-1]] += now - self._since
        self._since = now

    def _phase(self, action: str) -> str | None:
        if action not in self._known:
            self._known[action] = phase_of(action)
        return self._known[action]


def phase_of(action: str) -> str | None:
    """The phase that one of Lightning's action names belongs to; None for one that only contains others."""
    owner, _, name = action.rpartition(".")
    if owner.startswith("[Callback]"):
        return "callbacks"
    if owner.startswith("[Strategy]"):
        return {"batch_to_device": "transfer", "training_step": "forward", "backward": "backward"}.get(name)
    if owner.startswith("[LightningModule]"):
        return {"optimizer_step": "optimizer", "optimizer_zero_grad": "optimizer"}.get(name)
    return "data_wait" if action == "[_TrainingEpochLoop].train_dataloader_next" else None
