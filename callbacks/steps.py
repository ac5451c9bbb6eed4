"""One row a training step: how long it took, and where the time went."""

import csv
import time
from pathlib import Path
from typing import Any, TextIO

from lightning import LightningModule
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.data import extract_batch_size

from callbacks.board import step_scalars
from callbacks.phases import PHASES, PhaseClock

FLUSH_SECONDS = 5  # at most so much is lost when the process is killed
COLUMNS = ("step", "epoch", "images", "profiled", "total", *PHASES)


class StepRecorder(Callback):
    """Write ``COLUMNS`` to a CSV file, one row a training step: phases in seconds, ``images`` on all ranks.

    A step reaches from the end of the batch before to the end of its own last callback; the first of an epoch, or
    after a validation, begins when that has ended. ``profiled`` is 1 while a profiler disturbed the step. ``images``
    is empty for a kind of batch whose size Lightning cannot tell. Rank 0 alone writes. Every
    `trainer.log_every_n_steps` steps the logger gets those of an undisturbed step, as ``step_seconds/<phase>``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: TextIO | None = None

    def setup(self, trainer: Any, pl_module: LightningModule, stage: str) -> None:
        """Become the last callback, behind the checkpoints, so that a step ends after all others."""
        others = [callback for callback in trainer.callbacks if callback is not self]
        trainer.callbacks = [*others, self]

    def on_fit_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Open the file and start the clock."""
        self._clock = PhaseClock(trainer.profiler)
        self._clock.ignore_idle_hooks(trainer.callbacks)
        trainer.profiler = self._clock
        if trainer.is_global_zero:
            self._file = self.path.open("w", newline="", buffering=1 << 16)
            self._rows = csv.writer(self._file)
            self._rows.writerow(COLUMNS)
            self._file.flush()
            self._flushed = time.monotonic()

    def on_train_start(self, *_: Any) -> None:
        """A step does not hold what went before; a run resumed within an epoch does not start that epoch again."""
        self._clock.restart()

    def on_train_epoch_start(self, *_: Any) -> None:
        """Nor what happened between epochs."""
        self._clock.restart()

    def on_validation_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Nor a validation in the middle of one."""
        if not trainer.sanity_checking and self._file is not None:
            self._clock.restart()

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        """Note whether a profiler records this step."""
        self._recording = _recording(trainer)

    def on_train_batch_end(
        self,
        trainer: Any,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        *_: Any,
    ) -> None:
        """Write the step's row."""
        phases = self._clock.lap()
        if self._file is None:
            return
        # A profiler that starts or stops does so at the end of a step, which that slows down too.
        profiled = self._recording or _recording(trainer)
        step = trainer.fit_loop.epoch_loop.total_batch_idx
        row = [step, trainer.current_epoch, _images(batch, trainer.world_size)]
        seconds = [sum(phases.values()), *phases.values()]
        self._rows.writerow([*row, int(profiled), *(f"{value:.7f}" for value in seconds)])
        if (now := time.monotonic()) - self._flushed > FLUSH_SECONDS:
            self._file.flush()
            self._flushed = now
        if not profiled and trainer.log_every_n_steps and (step + 1) % trainer.log_every_n_steps == 0:
            step_scalars(trainer, phases, trainer.global_step)

    def on_exception(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Keep what was measured."""
        self._close(trainer)

    def teardown(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Keep what was measured."""
        self._close(trainer)

    def _close(self, trainer: Any) -> None:
        if isinstance(trainer.profiler, PhaseClock):
            trainer.profiler = trainer.profiler.inner
        if self._file is not None:
            self._file.close()
            self._file = None


def _images(batch: Any, ranks: int) -> int | str:
    try:
        return extract_batch_size(batch) * ranks
    except MisconfigurationException:
        return ""


def _recording(trainer: Any) -> bool:
    return any(getattr(callback, "recording", False) for callback in trainer.callbacks)
