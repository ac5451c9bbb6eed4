# Bottleneck: training_step asks for each number of its output by .item(), about 15 ms. Cause: single_thread forward.

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader

torch.set_num_threads(2)


class Careful(BoringModel):
    def training_step(self, batch, batch_idx):
        largest = max(value.item() for _ in range(20) for row in self(batch).abs() for value in row)
        self.log("largest", largest)
        return super().training_step(batch, batch_idx)


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Careful(), DataLoader(RandomDataset(32, 2000), batch_size=50))
