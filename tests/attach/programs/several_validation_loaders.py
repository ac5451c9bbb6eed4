# Bottleneck: the second validation loader sleeps 5 ms a batch, after each epoch of 8 steps. Cause: validation.

import time

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import DataLoader


class Archive(RandomDataset):
    def __getitems__(self, indices):
        time.sleep(0.005)
        return [self[index] for index in indices]


class Model(BoringModel):
    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("val", self.step(batch))


validation = [DataLoader(RandomDataset(32, 32), batch_size=4), DataLoader(Archive(32, 64), batch_size=4)]
trainer = Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Model(), DataLoader(RandomDataset(32, 64), batch_size=8), CombinedLoader(validation, "sequential"))
