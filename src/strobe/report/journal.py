"""A line an epoch in train.log."""

import logging

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_only

log = logging.getLogger(__name__)


class Journal(Callback):
    """Logs the metrics of each epoch, and those of the test."""

    @rank_zero_only
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what is known after an epoch."""
        log.info("epoch %d, step %d: %s", trainer.current_epoch, trainer.global_step, _metrics(trainer))

    @rank_zero_only
    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what the test found."""
        log.info("test: %s", _metrics(trainer))


def _metrics(trainer: Trainer) -> str:
    return ", ".join(f"{name} {float(value):.4f}" for name, value in sorted(trainer.callback_metrics.items()))
