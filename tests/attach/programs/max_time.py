# Bottleneck: a validation of 1.2 s after 20 fast steps, in which max_time runs out. Cause: validation.

import time

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel


class Model(BoringModel):
    def validation_step(self, batch, batch_idx):
        time.sleep(0.4)
        return super().validation_step(batch, batch_idx)


trainer = Trainer(
    max_epochs=-1,
    max_time={"seconds": 1},
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    limit_train_batches=20,
    limit_val_batches=3,
    num_sanity_val_steps=0,
)
trainer.fit(Model())
