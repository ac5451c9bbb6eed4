# Bottleneck: the loss goes through all pairs of a batch in Python, 2,016 of them. Cause: small_operations.

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader

torch.set_num_threads(2)


class Pairwise(BoringModel):
    def training_step(self, batch, batch_idx):
        output = self(batch)
        apart = 0.0
        for first in range(len(output)):
            for second in range(first):
                apart = apart + (output[first] - output[second]).square().sum()
        self.log("apart", apart)
        return {"loss": apart}


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Pairwise(), DataLoader(RandomDataset(32, 640), batch_size=64))
