# Implicit feedback recommender, BPR loss
import lightning.pytorch as pl
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CFG = dict(users=60_000, items=30_000, dim=64, bs=512, lr=1e-3, wd=1e-4, epochs=40)


class Clicks(Dataset):
    def __init__(self, n, cfg, seed=3):
        rng = np.random.default_rng(seed)
        self.u = rng.integers(0, cfg["users"], n)
        taste = self.u % 50
        self.pos = (rng.zipf(1.3, n) * 50 + taste) % cfg["items"]
        self.neg = rng.integers(0, cfg["items"], n)

    def __len__(self):
        return len(self.u)

    def __getitem__(self, i):
        return self.u[i], self.pos[i], self.neg[i]


class BPR(pl.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.user = nn.Embedding(cfg["users"], cfg["dim"])
        self.item = nn.Embedding(cfg["items"], cfg["dim"])
        self.bias = nn.Embedding(cfg["items"], 1)
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.05)
        nn.init.zeros_(self.bias.weight)
        self.hits = self.seen = 0

    def score(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1) + self.bias(i).squeeze(-1)

    def training_step(self, batch, batch_idx):
        u, p, n = batch
        diff = self.score(u, p) - self.score(u, n)
        self.hits += int((diff > 0).sum())
        self.seen += len(u)
        return -nn.functional.logsigmoid(diff).mean()

    def on_train_epoch_end(self):
        self.log("auc", self.hits / self.seen, prog_bar=True)
        self.hits = self.seen = 0

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.cfg["lr"], weight_decay=self.cfg["wd"])


pl.seed_everything(3)
loader = DataLoader(Clicks(100_000, CFG), batch_size=CFG["bs"], shuffle=True)
trainer = pl.Trainer(max_epochs=CFG["epochs"], accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)
trainer.fit(BPR(CFG), loader)
