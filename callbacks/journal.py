"""A line an epoch in the log."""

import logging

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

log = logging.getLogger(__name__)


class Journal(Callback):
    """Logs the metrics of each epoch, and those of the test."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what is known after an epoch."""
        _log(trainer, f"epoch {trainer.current_epoch}, step {trainer.global_step}")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what the test found."""
        _log(trainer, "test")


def _log(trainer: Trainer, what: str) -> None:
    metrics = trainer.callback_metrics  # reading them reduces over all ranks: each must
    if trainer.is_global_zero:
        values = ", ".join(f"{name} {float(value):.4f}" for name, value in sorted(metrics.items()))
        log.info("%s: %s", what, values)
