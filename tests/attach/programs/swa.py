# Bottleneck: the module plots for 150 ms after each epoch of 8 steps. Cause: between Model.

import time

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.demos.boring_classes import BoringModel


class Model(BoringModel):
    def on_train_epoch_end(self):
        time.sleep(0.15)


average = StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=2)
trainer = Trainer(
    max_epochs=5,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    limit_train_batches=8,
    limit_val_batches=1,
    callbacks=[average],
)
trainer.fit(Model())
