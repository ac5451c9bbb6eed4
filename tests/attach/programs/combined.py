# Bottleneck: one of two loaders sleeps 6 ms a batch. Cause: loader.
# Arguments: min_size | max_size | max_size_cycle.

import sys
import time

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import DataLoader


class Archive(RandomDataset):
    def __getitems__(self, indices):
        time.sleep(0.006)
        return [self[index] for index in indices]


class Model(BoringModel):
    def training_step(self, batch, batch_idx, dataloader_idx=0):
        parts = batch.values() if isinstance(batch, dict) else [batch]
        return sum(self.step(part) for part in parts if part is not None)


labelled, other = DataLoader(Archive(32, 160), batch_size=4), DataLoader(RandomDataset(32, 60), batch_size=4)
loaders = {"labelled": labelled, "other": other}
trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, limit_val_batches=0)
trainer.fit(Model(), CombinedLoader(loaders, sys.argv[1] if len(sys.argv) > 1 else "min_size"))
