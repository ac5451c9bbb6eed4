import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

rng = np.random.default_rng(2024)


class CustomerTable(Dataset):
    def __init__(self, rows):
        self.num = rng.normal(size=(rows, 20)).astype("float32")
        self.cat = rng.integers(0, 12, size=(rows, 4))
        z = self.num[:, 0] - 0.7 * self.num[:, 3] * self.num[:, 5] + 0.3 * (self.cat[:, 1] > 6) - 0.2
        self.churn = (z + rng.normal(scale=0.5, size=rows) > 0).astype("float32")

    def __len__(self):
        return len(self.churn)

    def __getitem__(self, i):
        return {"num": self.num[i], "cat": self.cat[i], "target": self.churn[i]}


class GatedBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.a, self.b, self.out = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        h = self.norm(x)
        return x + self.out(torch.sigmoid(self.a(h)) * self.b(h))


class ChurnModel(L.LightningModule):
    def __init__(self, d=64, depth=10):
        super().__init__()
        self.cats = nn.ModuleList(nn.Embedding(12, 6) for _ in range(4))
        self.inp = nn.Linear(20 + 24, d)
        self.blocks = nn.Sequential(*(GatedBlock(d) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 1))
        self.tp = self.n = 0

    def forward(self, b):
        x = torch.cat([b["num"]] + [e(b["cat"][:, k]) for k, e in enumerate(self.cats)], dim=1)
        return self.head(self.blocks(self.inp(x))).squeeze(1)

    def training_step(self, b, idx):
        logit = self(b)
        self.tp += ((logit > 0) == (b["target"] > 0.5)).sum().item()
        self.n += len(logit)
        return nn.functional.binary_cross_entropy_with_logits(logit, b["target"])

    def on_train_epoch_end(self):
        print("train accuracy %.3f" % (self.tp / self.n))
        self.tp = self.n = 0

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


L.seed_everything(2024)
train_loader = DataLoader(CustomerTable(1600), batch_size=4, shuffle=True)
trainer = L.Trainer(max_epochs=300, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(ChurnModel(), train_loader)
