"""How training gets on: Lightning's progress bar with its rate and its waiting now, and a line an epoch in the log."""

import logging
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, RichProgressBar

from .steps import StepRecorder

_log = logging.getLogger(__name__)


class ProgressBar(RichProgressBar):
    """Shows ``images/s`` and ``waiting``, the share of time that waits for data, over the latest steps.

    A `strobe.callbacks.StepRecorder` beside it measures them.
    """

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """What the bar shows behind its numbers."""
        shown: dict[str, Any] = super().get_metrics(trainer, pl_module)
        recorders = [callback for callback in trainer.callbacks if isinstance(callback, StepRecorder)]  # type: ignore[attr-defined]
        if recorders and (live := recorders[0].live()):
            shown |= {"images/s": f"{live[0]:,.0f}", "waiting": f"{live[1]:.0%}"}
        return shown


class Journal(Callback):
    """Logs the metrics of each epoch, and those of the test."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what is known after an epoch."""
        _log_metrics(trainer, f"epoch {trainer.current_epoch}, step {trainer.global_step}")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what the test found."""
        _log_metrics(trainer, "test")


def _log_metrics(trainer: Trainer, what: str) -> None:
    metrics = trainer.callback_metrics  # reading them reduces over all ranks: each must
    if trainer.is_global_zero:
        values = ", ".join(f"{name} {float(value):.4f}" for name, value in sorted(metrics.items()))
        _log.info("%s: %s", what, values)
