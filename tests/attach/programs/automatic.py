# Bottleneck: the data set sleeps 1 ms a sample, 85% of a step. Cause: loader.

import time

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader


class OnASlowDisk(RandomDataset):
    def __getitem__(self, index):
        time.sleep(0.001)
        return super().__getitem__(index)


trainer = Trainer(max_epochs=1, accelerator="cpu", enable_progress_bar=False)
trainer.fit(BoringModel(), DataLoader(OnASlowDisk(32, 400), batch_size=8))
