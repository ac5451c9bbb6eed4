# Bottleneck: collating pads sequences number by number, about 10 ms. Cause: loader.

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader


def pad(samples):
    longest = max(len(sample) for sample in samples)
    batch = torch.zeros(len(samples), longest, dtype=torch.int64)
    for row, sample in zip(batch, samples, strict=True):
        for place, token in enumerate(sample):
            row[place] = token
    return batch, torch.tensor([len(sample) for sample in samples])


class Tagger(LightningModule):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(16, 2)

    def training_step(self, batch, batch_idx):
        tokens, lengths = batch
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        loss = self.out(self.rnn(packed)[1][0]).square().mean()
        self.log("loss", loss, batch_size=len(lengths))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


random = torch.Generator().manual_seed(1)
texts = [
    torch.randint(100, (int(length),), generator=random).tolist()
    for length in torch.randint(20, 60, (240,), generator=random)
]
trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Tagger(), DataLoader(texts, batch_size=8, shuffle=True, collate_fn=pad))
