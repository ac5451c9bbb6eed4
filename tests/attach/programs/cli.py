# Bottleneck: a callback from the command line sleeps 6 ms before each batch. Cause: callback Fetch.
# Arguments: fit --trainer.accelerator=cpu --trainer.max_epochs=1 --trainer.logger=false
# --trainer.callbacks=__main__.Fetch.

import time

from lightning.pytorch import Callback
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel


class Fetch(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        time.sleep(0.006)


LightningCLI(BoringModel, BoringDataModule)
