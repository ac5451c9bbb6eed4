"""One row for each training step: how long it took, and where the time went; and the progress bar."""

import logging
import math
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from .accelerators import is_accelerator
from .batches import elements_of, size_of
from .columns import rows_of
from .device_clock import DeviceClock
from .lightnings import Callback, LightningModule, RichProgressBar, Trainer, seconds_left, steps_left
from .owners import checkpoint_names, metrics_of, owners, owners_between, restore_idle, skip_idle, state_before_fit
from .phases import PhaseClock
from .recording import come_last
from .rows import StepLog, StepRows
from .waits import Waits
from .worker_lines import WorkerLines

ROOMY, WIDE = 120, 150  # columns of a terminal
SHORTEST, FIGURES = 8, 70  # columns of the bar, and of all else on its line
_log = logging.getLogger(__name__)


class StepRecorder(Callback):
    """Write a CSV file with one row for each training step, in seconds.

    The columns are ``COLUMNS``, those of a GPU and of each owner of hooks (``StepRows``), and of several ranks
    ``RANKS``; docs/runs.md explains each. A step reaches from the end of the batch before to the end of its own last
    callback; the first of an epoch, or after a validation, begins when that has ended. What lies between steps is in
    the row of the step before. Ranks other than 0 write into ``ranks/<rank>.csv`` beside it.
    Every `trainer.log_every_n_steps` steps the logger gets the phases of an undisturbed step, as
    ``step_seconds/<phase>``, unless ``loggers`` is False.
    """

    def __init__(self, path: str | Path, *, loggers: bool = True, workers: WorkerLines | None = None) -> None:
        self.path, self.loggers = Path(path), loggers
        self._workers = workers  # which are looked at already
        self.batch_size: int | None = None  # of the current step, where somebody knows better than its tensors
        self._clock: PhaseClock | None = None
        self.step_log: StepLog | None = None  # what it keeps of the steps of the latest `fit`
        self._waits: Waits | None = None  # of one of several ranks
        self._began = 0.0  # `fit`, by time.monotonic
        self.startup_seconds: float | None = None  # of `fit`, before its first step: a sanity check, starting workers

    def __getstate__(self) -> dict[str, Any]:
        """A copy is as newly made."""
        return state_before_fit(self, _clock=None, step_log=None, _waits=None, _workers=None, _profilers=[])

    def setup(self, trainer: Any, pl_module: LightningModule, stage: str) -> None:
        """Become the last callback, after the checkpoints, so that a step ends after all others."""
        if self in trainer.callbacks:  # not of another callback, which passes on what it hears
            come_last(self, trainer)

    def on_fit_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Open the file and start the clock."""
        device, ranks = trainer.strategy.root_device, trainer.world_size > 1
        on_gpu = is_accelerator(device)
        self._began, self.startup_seconds = time.monotonic(), None
        self.step_log, self._clock = None, PhaseClock(device=DeviceClock(device=device) if on_gpu else None)
        if ranks:  # a hook costs one process more than nothing
            self.on_before_backward = self._before_backward  # type: ignore[method-assign]
        skip_idle(self, trainer)
        self._clock.install(trainer)
        self._clock.watch_calls(trainer.loggers, "log_metrics", "save")
        self._clock.watch_calls(metrics_of(pl_module), "update", "compute")
        self._validating = 0
        self._profilers: list[Any] = []
        self._recording = False  # whether a profiler recorded when the step began
        self._ranks = trainer.world_size
        checkpoints = checkpoint_names(trainer)
        loggers = dict.fromkeys(type(logger).__name__ for logger in trainer.loggers)
        mine = {*checkpoints, type(self).__name__}
        between = [name for name in (*owners_between(trainer), *loggers) if name not in mine]
        path = rows_of(self.path, trainer.global_rank)
        rows = StepRows(path, [*owners(trainer), *loggers], between=between, device=on_gpu, ranks=ranks)
        if ranks:
            self._waits = Waits(self._clock)
            self._waits.install()
        alone = not ranks and device.type == "cpu"
        self.step_log = StepLog(self._clock, rows, checkpoints, self._waits, alone=alone, workers=self._workers)
        self._workers = None

    def on_train_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Begin the first step here; a run that is resumed within an epoch does not start that epoch again."""
        self._profilers = [one for one in trainer.callbacks if getattr(one, "recording", None) is not None]
        if self.step_log is not None and self._profilers:
            self.step_log.follows = False
        self._recording = self._is_recorded()
        self._look(trainer)
        self._begin()

    def on_train_epoch_start(self, trainer: Any, *_: Any) -> None:
        """Begin a step here, without what happened between epochs."""
        self._look(trainer)
        self._begin(epoch=True)

    def on_train_epoch_end(self, *_: Any) -> None:
        """Until the next epoch no step runs."""
        if self.step_log is not None:
            self.step_log.between = True

    def on_validation_start(self, *_: Any) -> None:
        """Count a validation apart from the rest, which comes before it."""
        self._begin()
        self._validating = time.perf_counter_ns()

    def on_validation_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Begin a step here, without the validation before it."""
        if not trainer.sanity_checking:
            self._begin(validation=(time.perf_counter_ns() - self._validating) / 1e9)

    def on_train_batch_end(self, trainer: Any, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any) -> None:
        """End the step."""
        if self._clock is None or self.step_log is None:
            return
        # A profiler that starts or stops does so at the end of a step, which that slows down too.
        before, self._recording = self._recording, bool(self._profilers) and self._is_recorded()
        profiled = before or self._recording
        size, self.batch_size = self.batch_size or size_of(batch), None
        step = trainer.fit_loop.epoch_loop.total_batch_idx
        images = None if size is None else size * self._ranks
        elements = elements_of(batch) if self._waits else None
        lap = self.step_log.end_step(step, trainer.current_epoch, images, profiled=profiled, elements=elements)
        self.step_log.look_into(batch)
        if self.loggers and not profiled and trainer.log_every_n_steps and (step + 1) % trainer.log_every_n_steps == 0:
            phases = lap.phases | {"total": sum(lap.phases.values())}
            scalars = {f"step_seconds/{name}": value for name, value in phases.items()}
            for logger in trainer.loggers:
                logger.log_metrics(scalars, step=trainer.global_step)

    def live(self) -> tuple[float, float] | None:
        """Images/s of the latest steps and what lies between them, and the share of that time that waited for data.

        None before the first step.
        """
        return self.step_log.live() if self.step_log else None

    def _is_recorded(self) -> bool:
        return any(one.recording is True for one in self._profilers)

    def _look(self, trainer: Any) -> None:
        if self._clock is not None:
            self._clock.watch.look(trainer.lightning_module)
        if self.step_log is not None and not self.step_log.has_steps:
            self.startup_seconds = time.monotonic() - self._began

    def _before_backward(self, trainer: Any, pl_module: LightningModule, loss: Any) -> None:
        type(self).on_before_backward(self, trainer, pl_module, loss)  # which a derived class may have
        if self._waits is not None:
            self._waits.watch(loss)

    def on_train_end(self, *_: Any) -> None:
        """Count what ends the epoch after the last step."""
        self._begin()

    def _begin(self, validation: float = 0.0, *, epoch: bool = False) -> None:
        """Begin a step now; the time since the last one ended goes into that one's row."""
        if self._clock is not None and self.step_log is not None:
            self.step_log.begin(validation, epoch=epoch)

    def on_exception(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Keep what was measured."""
        clock, self._clock = self._clock, None
        waits, self._waits = self._waits, None
        restore_idle(self)
        if waits is not None:
            waits.remove()
            vars(self).pop("on_before_backward", None)
        if clock is None:
            return
        try:
            if self.step_log is not None:
                self.step_log.close()
        finally:
            clock.remove(trainer)

    teardown = on_exception


SPARE = ("CustomTimeColumn", "ProcessingSpeedColumn")  # of the bar: ``left`` and ``images/s`` say the same


class ProgressBar(RichProgressBar):
    """Shows ``images/s`` and ``waiting``, the share of time that waits for data, of the latest steps and between them.

    ``left`` is the time until training ends, with its validations. A narrow terminal has no room for the module's own
    metrics, so they are left out.

    A `strobe.callbacks.StepRecorder` beside it measures them.
    """

    _began, _first = math.inf, 0  # when this `fit`'s first step, which takes longer, had ended; its number

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """The figures after the bar's counts."""
        narrow = self._console is not None and self._console.width < ROOMY
        shown: dict[str, Any] = {} if narrow else super().get_metrics(trainer, pl_module)
        recorders = [callback for callback in trainer.callbacks if isinstance(callback, StepRecorder)]  # type: ignore[attr-defined]
        if recorders and (live := recorders[0].live()):
            shown |= {"images/s": f"{live[0]:,.0f}", "waiting": f"{live[1]:.0%}"}
        done = trainer.fit_loop.epoch_loop.batch_progress.total.ready - self._first
        passed = time.monotonic() - self._began
        left = min(seconds_left(trainer), passed * steps_left(trainer) / done) if done > 0 else math.inf
        if 0 < left < math.inf:
            shown["left"] = str(timedelta(seconds=round(left)))
        return shown

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the `fit` before."""
        super().on_train_start(trainer, pl_module)
        self._began = math.inf

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        """Look at the clock after the first step."""
        if self._began == math.inf:
            self._began, self._first = time.monotonic(), trainer.fit_loop.epoch_loop.batch_progress.total.ready
        super().on_train_batch_end(trainer, *args)

    def configure_columns(self, trainer: Trainer) -> list[Any]:
        """All columns if the terminal is wide; else those that leave the figures room on the same line.

        And the two characters of ^C, which would begin a line of their own: the bar would be there twice.
        """
        width = WIDE if self._console is None else self._console.width
        shown = [one for one in super().configure_columns(trainer) if width >= WIDE or type(one).__name__ not in SPARE]
        for one in shown:
            if hasattr(one, "bar_width"):
                one.bar_width = min(one.bar_width, max(SHORTEST, width - FIGURES))
        return shown

    def _get_train_description(self, current_epoch: int) -> str:
        text: str = super()._get_train_description(current_epoch)
        return text.replace("/-2", "   ")  # of no last epoch


class Journal(Callback):
    """Logs each epoch's metrics, and those of the test."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics after an epoch."""
        _log_metrics(trainer, f"epoch {trainer.current_epoch}, step {trainer.global_step}")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the test's metrics."""
        _log_metrics(trainer, "test")


def _log_metrics(trainer: Trainer, what: str) -> None:
    metrics = trainer.callback_metrics  # reading them reduces over all ranks: each must
    if trainer.is_global_zero:
        values = ", ".join(f"{name} {float(value):.4f}" for name, value in sorted(metrics.items()))
        _log.info("%s: %s", what, values)
