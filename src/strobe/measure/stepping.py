"""The callback by which a training tells its steps to what times them."""

from collections.abc import Callable
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.data import extract_batch_size


class Stepping(Callback):
    """Counts each step that has ended, and ends training with the last one needed.

    Args:
        add: of a :class:`strobe.measure.timing.Meter` or ``Window``, or the like: it gets the images of a step, and
            says whether that was the last one.
    """

    def __init__(self, add: Callable[[int], bool]) -> None:
        self._add = add

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a step."""
        if self._add(extract_batch_size(batch)):
            trainer.should_stop = True
