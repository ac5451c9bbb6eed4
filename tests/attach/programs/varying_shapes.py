# Bottleneck: collating looks up each word in a list of 3,000, about 10 ms a batch. Cause: loader.
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader

VOCABULARY = [f"word{number}" for number in range(3000)]


def pad(samples):
    longest = max(len(sample) for sample in samples)
    batch = torch.zeros(len(samples), longest, dtype=torch.int64)
    for row, sample in zip(batch, samples, strict=True):
        for place, word in enumerate(sample):
            row[place] = VOCABULARY.index(word)
    return batch, torch.tensor([len(sample) for sample in samples])


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(VOCABULARY), 16)
        self.out = nn.Linear(16, 2)

    def training_step(self, batch, batch_idx):
        words, lengths = batch
        loss = self.out(self.embed(words).sum(1) / lengths[:, None]).square().mean()
        self.log("loss", loss, batch_size=len(lengths))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


random = torch.Generator().manual_seed(1)
lengths = torch.randint(20, 60, (240,), generator=random).tolist()
texts = [[f"word{number}" for number in torch.randint(3000, (length,), generator=random)] for length in lengths]
trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Classifier(), DataLoader(texts, batch_size=8, shuffle=True, collate_fn=pad))
