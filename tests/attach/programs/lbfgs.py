# Bottleneck: the closure, which runs several times a step, waits for a lock for 4 ms. Cause: stalled forward.

import time

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader


class Model(BoringModel):
    def training_step(self, batch, batch_idx):
        time.sleep(0.004)
        return super().training_step(batch, batch_idx)

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.01, max_iter=3)


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Model(), DataLoader(RandomDataset(32, 128), batch_size=4))
