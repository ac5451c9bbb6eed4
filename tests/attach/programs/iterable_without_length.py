# Bottleneck: batches are augmented by the module, in a Python loop of about 10 ms. Cause: transfer or unbatched_loop.

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomIterableDataset
from torch.utils.data import DataLoader


class Augmenting(BoringModel):
    def on_after_batch_transfer(self, batch, dataloader_idx):
        if not self.trainer.training:
            return batch
        batch = batch.clone()
        for row in batch:
            for place in range(100):
                row[place % 32] += torch.rand(()) * 0.01
        return batch


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Augmenting(), DataLoader(RandomIterableDataset(32, 320), batch_size=8))
