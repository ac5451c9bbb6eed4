# Bottleneck: one sample in ten lies on a tape, 60 ms, the others are fast. Cause: uneven_steps.

import time

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader


class OnTapes(RandomDataset):
    def __getitem__(self, index):
        if index % 10 == 9:
            time.sleep(0.06)
        return super().__getitem__(index)


class Model(BoringModel):
    def training_step(self, batch, batch_idx):
        self.log("loss", 1.0, on_epoch=True)
        return super().training_step(batch, batch_idx)


early = EarlyStopping("loss", patience=1, check_on_train_epoch_end=True)
trainer = Trainer(max_epochs=9, accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=[early])
trainer.fit(Model(), DataLoader(OnTapes(32, 60), batch_size=1))
