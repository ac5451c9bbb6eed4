# Bottleneck: the data set sleeps 2 ms a sample, until it fails. Cause: loader. Ends with ZeroDivisionError.

import time

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader


class Damaged(RandomDataset):
    def __getitem__(self, index):
        time.sleep(0.002)
        return super().__getitem__(index) / (0 if index == 130 else 1)

    def __len__(self):
        return 200


class Strict(Damaged):
    def __getitem__(self, index):
        if index == 130:
            1 / 0  # noqa: B018
        return super().__getitem__(index)


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(BoringModel(), DataLoader(Strict(32, 200), batch_size=4))
