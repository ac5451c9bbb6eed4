"""How long a run will take, known after its first steps."""

import logging
import math
import time
from typing import Any

from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig

from strobe.attach.between import validations
from strobe.callbacks.lightnings import seconds_left, steps_left
from strobe.callbacks.recording import warning_only
from strobe.diagnose.candidates import MOST
from strobe.present.terminal import clock

STEPS, SECONDS = 4, 5.0  # at least, before it says anything
VALIDATING = 1 / 3  # of training on as many images: the forward pass
BEGINNING = 1.0  # seconds, about, until what is measured alone is warm
TURNING = 12  # steps, about, in which two models become warm and take turns

log = logging.getLogger(__name__)


def ceilings_seconds(cfg: DictConfig, step: float) -> float:
    """At most how long it takes to measure the ceilings and what would be faster; ``step``: seconds of a step.

    That is each side, all changes that are tried, the best one again, and then each side again.
    """
    return float(4 * (cfg.ceilings_seconds + BEGINNING) + (MOST + 1) * turns_seconds(cfg, step))


def turns_seconds(cfg: DictConfig, step: float) -> float:
    """About how long it takes to compare a model with the run's own, in turns."""
    return float(cfg.ceilings_seconds + BEGINNING + TURNING * step)


class Forecast(Callback):
    """Logs, after a few steps, about how long training will take; how long measuring will is known after it."""

    def __init__(self, *, ceilings: bool) -> None:
        self._ceilings = ceilings
        self._ends: list[float] | None = []  # of steps, monotonic seconds; None when it has been logged

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Log it once enough steps are known. It uses their median, so a slow first step counts for little."""
        if self._ends is None:
            return
        self._ends.append(now := time.monotonic())
        if len(self._ends) <= STEPS or now - self._ends[0] < SECONDS:
            return
        lengths = sorted(after - before for before, after in zip(self._ends, self._ends[1:], strict=False))
        step, self._ends = lengths[len(lengths) // 2], None
        with warning_only("The estimate of how long training takes"):
            self._tell(trainer, step)

    def _tell(self, trainer: Any, step: float) -> None:
        validated = sum(trainer.num_val_batches) * validations(trainer, trainer.num_training_batches, step)
        a_step = step * (1 + VALIDATING * validated)
        left = min(seconds_left(trainer), steps_left(trainer) * a_step)
        if left == math.inf:
            return
        text = f"About {clock(left)} of training left"
        if self._ceilings:
            text += ", then ceilings are measured (ceilings=false leaves them out)"
        log.info("%s", text)
