# Bottleneck: collating takes 8 ms in the training process. Cause: loader.

import time

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader, default_collate


def collate(samples):
    time.sleep(0.008)
    return default_collate(samples)


class Model(BoringModel):
    def training_step(self, dataloader_iter):
        batch, _, _ = next(dataloader_iter)
        return {"loss": self.step(batch)}

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Model(), DataLoader(RandomDataset(32, 160), batch_size=4, collate_fn=collate))
