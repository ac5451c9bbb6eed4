# Bottleneck: the optimizer writes a journal for 20 ms in each update. Cause: optimizer.

import time

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.demos.boring_classes import BoringModel


class Journalled(torch.optim.SGD):
    def step(self, closure=None):
        loss = super().step(closure)
        time.sleep(0.02)
        return loss


class Model(BoringModel):
    def configure_optimizers(self):
        return Journalled(self.parameters(), lr=0.1)


less_and_less = GradientAccumulationScheduler({0: 1, 1: 2, 2: 4})
quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
trainer = Trainer(max_epochs=3, accelerator="cpu", limit_train_batches=16, callbacks=[less_and_less], **quiet)
trainer.fit(Model())
