# Bottleneck: a metric sleeps 6 ms in each update, in two fits of one Trainer. Cause: callback Slow.

import time

import torchmetrics
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel


class Slow(torchmetrics.MeanMetric):
    def update(self, value, weight=1.0):
        time.sleep(0.006)
        super().update(value, weight)


class Model(BoringModel):
    def __init__(self):
        super().__init__()
        self.mean = Slow()

    def training_step(self, batch, batch_idx):
        found = super().training_step(batch, batch_idx)
        self.mean.update(found["loss"].detach())
        self.log("mean", self.mean)
        return found


model, trainer = Model(), Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(model)
trainer.fit_loop.max_epochs = 2
trainer.fit(model)
