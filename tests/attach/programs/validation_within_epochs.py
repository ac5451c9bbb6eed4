# Bottleneck: a checkpoint every 4 steps copies itself to an archive for 40 ms. Cause: checkpoint.

import time

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel


class Model(BoringModel):
    def on_save_checkpoint(self, checkpoint):
        time.sleep(0.04)


often = ModelCheckpoint("checkpoints", every_n_train_steps=4, save_top_k=-1)
trainer = Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    val_check_interval=0.25,
    limit_val_batches=2,
    callbacks=[often],
)
trainer.fit(Model())
