"""The timed steps of a training, between its warm-up and its end."""

import math
import time
from collections.abc import Callable
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from strobe.app.loaders.base import Batch
from strobe.records.steps import WARMUP_STEPS

LEAST = 3  # timed steps, however long they take
PATIENCE = 2


class Window:
    """The timed steps of a training: so many seconds of them, and whole epochs where there is time for one.

    Args:
        seconds: after which timing ends; ``least`` steps are timed in any case.
        warmup: steps before; fewer, but no fewer than ``WARMUP_STEPS``, if they take ``PATIENCE`` times as long as the
            window: what workers have ready lasts longest where training is slow, and there it matters least.
        multiple: workers that deliver batches in turn; unless the window ends with an epoch, so many steps or a
            multiple of it are timed, that it does not matter which worker's batch was the first.
        epoch: images of an epoch; a window that has held one ends with an epoch, if another would not fit.
        least: timed steps, however long they take.
        most: timed steps, or the next multiple.
        clock: seconds, with all work done that was given to a device.

    Attributes:
        steps: that were timed.
        images: of these steps.
        seconds: that they took, with what lies between epochs; 0 before the window's end.
    """

    def __init__(
        self,
        seconds: float,
        *,
        warmup: int = WARMUP_STEPS,
        multiple: int = 1,
        epoch: int = 0,
        least: int = LEAST,
        most: float = math.inf,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.steps = self.images = 0
        self.seconds = 0.0
        self.epoch = epoch
        self._limit, self._warmup, self._multiple, self._clock = seconds, warmup, multiple, clock
        self._least, self._most = least, most
        self._warm = 0  # steps
        self._began: float | None = None  # when the first step ended
        self._since = 0.0  # when timing began

    def add(self, images: int) -> bool:
        """Count a step that has ended; whether it was the last one."""
        if self._warm < self._warmup:
            self._warm += 1
            self._began = self._began or time.perf_counter()
            if self._warm >= WARMUP_STEPS and time.perf_counter() - self._began > PATIENCE * self._limit:
                self._warm = self._warmup
            if self._warm == self._warmup:
                self._since = self._clock()
            return False
        self.steps += 1
        self.images += images
        if self._is_over(time.perf_counter() - self._since):
            self.seconds = self._clock() - self._since
            return True
        return False

    def _is_over(self, passed: float) -> bool:
        if self.steps < self._least:
            return False
        if self.steps >= self._most or passed >= self._limit:
            return self.steps % self._multiple == 0
        epochs, rest = divmod(self.images, self.epoch or math.inf)
        return rest == 0 and passed * (epochs + 1) / epochs > self._limit


class Watch(Callback):
    """Shows a window the steps of a training, and ends it with the window."""

    def __init__(self, window: Window) -> None:
        self.window = window

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, *_: Any
    ) -> None:
        """Count a step."""
        if self.window.add(len(batch[1])):
            trainer.should_stop = True
