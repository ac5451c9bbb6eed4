# Bottleneck: the first sample fills a cache for 0.5 s, the others are fast. Cause: small_batch (The first step took) or
# nothing (The first step took).

import time

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomIterableDatasetWithLen
from torch.utils.data import DataLoader


class Cached(RandomIterableDatasetWithLen):
    def __iter__(self):
        for number, sample in enumerate(super().__iter__()):
            if number == 0:
                time.sleep(0.5)
            yield sample


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, limit_val_batches=0)
trainer.fit(BoringModel(), DataLoader(Cached(32, 512), batch_size=16))
