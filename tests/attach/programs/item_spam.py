# Bottleneck: training_step asks for each number by .item(), 60 ms. Cause: single_thread forward or small_operations.
# For so long, because threads of OpenMP look busy for some milliseconds after each operation that they share.

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader

torch.set_num_threads(2)


class Careful(BoringModel):
    def training_step(self, batch, batch_idx):
        output = self(batch).abs()
        largest = max(value.item() for _ in range(200) for row in output for value in row)
        self.log("largest", largest)
        return super().training_step(batch, batch_idx)


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Careful(), DataLoader(RandomDataset(32, 800), batch_size=50))
