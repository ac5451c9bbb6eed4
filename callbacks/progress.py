"""Lightning's progress bar, with the rate of training and its waiting as they are now."""

from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar

from .steps import StepRecorder


class ProgressBar(RichProgressBar):
    """Shows ``images/s`` and ``waiting``, the share of time that waits for data, over the latest steps.

    A `callbacks.StepRecorder` beside it measures them.
    """

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """What the bar shows behind its numbers."""
        shown: dict[str, Any] = super().get_metrics(trainer, pl_module)
        recorders = [callback for callback in trainer.callbacks if isinstance(callback, StepRecorder)]  # type: ignore[attr-defined]
        if recorders and (live := recorders[0].live()):
            shown |= {"images/s": f"{live[0]:,.0f}", "waiting": f"{live[1]:.0%}"}
        return shown
