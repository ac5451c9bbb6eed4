# Bottleneck: one worker makes a batch in 20 ms, training takes 1 ms. Cause: loader.

import time

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torchdata.stateful_dataloader import StatefulDataLoader


class OnASlowDisk(RandomDataset):
    def __getitem__(self, index):
        time.sleep(0.005)
        return super().__getitem__(index)


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(BoringModel(), StatefulDataLoader(OnASlowDisk(32, 160), batch_size=4, num_workers=1))
