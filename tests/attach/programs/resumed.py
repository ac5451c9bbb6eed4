# Bottleneck: the data set sleeps 1 ms a sample, in the first fit and in the one that goes on from its checkpoint.
# Cause: loader.

import time

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader


class OnASlowDisk(RandomDataset):
    def __getitem__(self, index):
        time.sleep(0.001)
        return super().__getitem__(index)


def train(epochs, checkpoint=None):
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False)
    trainer.fit(BoringModel(), DataLoader(OnASlowDisk(32, 160), batch_size=8, shuffle=True), ckpt_path=checkpoint)
    return trainer


train(1).save_checkpoint("first.ckpt")
train(2, "first.ckpt")
