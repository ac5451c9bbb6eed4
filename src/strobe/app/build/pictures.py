"""Pictures of the first batch and of the confusion matrix, into TensorBoard or beside the run's other files."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from PIL import Image

from strobe.app.data.base import ImageData
from strobe.app.loaders.base import Batch
from strobe.app.model.classifier import ImageClassifier
from strobe.callbacks.figures import pixels
from strobe.present.raster import batch_grid, confusion_matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

MOST = 32
MOST_CLASSES = 200  # a confusion matrix of 4,300 pixels; of ImageNet's thousand classes, 20,000


class Pictures(Callback):
    """Draws the first batch, as augmented and with its labels, and the test's confusion matrix."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._drawn = False

    @rank_zero_only
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Batch, batch_idx: int) -> None:
        """Draw the first batch, once."""
        if self._drawn:
            return
        self._drawn = True
        data = _data(trainer)
        images, labels = batch[0][:MOST], batch[1][:MOST]
        rgb = data.to_rgb(images).numpy().astype(np.float32)
        names = [data.classes[label] for label in labels.tolist()]
        self._show(trainer, "first_batch", batch_grid(rgb, names, title=f"First batch, {data.title}"))

    @rank_zero_only
    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw the confusion matrix, unless it has too many classes to read."""
        assert isinstance(pl_module, ImageClassifier)
        data = _data(trainer)
        if len(data.classes) > MOST_CLASSES:
            log.info("The confusion matrix is not drawn: %d classes are too many for a picture", len(data.classes))
            return
        counts = pl_module.confusion_counts.numpy()
        self._show(trainer, "test_confusion", confusion_matrix(counts, data.classes, title=f"Test, {data.title}"))

    def _show(self, trainer: Trainer, name: str, figure: "Figure") -> None:
        picture = pixels(figure)
        boards = [logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
        for board in boards:
            board.experiment.add_image(name, picture, trainer.global_step, dataformats="HWC")
        if trainer.loggers and not boards:
            self.folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(self.folder / f"{name}.png")


def _data(trainer: Trainer) -> Any:
    data = trainer.datamodule  # type: ignore[attr-defined]
    assert isinstance(data, ImageData)
    return data
