# Bottleneck: the text is read line by line from a slow disk, 120 ms a batch. Cause: loader.

import time

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos import LightningTransformer
from torch.utils.data import DataLoader, Dataset


class Text(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        time.sleep(0.03)
        text = torch.arange(index, index + 36) % 64
        return text[:-1], text[1:]


class Model(LightningTransformer):
    def prepare_data(self):
        pass  # it would download


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False)
trainer.fit(Model(vocab_size=64), DataLoader(Text(), batch_size=4))
