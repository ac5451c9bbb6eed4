"""Daily demand of a supermarket chain: one set of coefficients per store, shared product effects.

The coefficients of a store are separate parameters, so that a store can be
frozen, exported or added without touching the others.
"""

import lightning as L
import pandas as pd
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset

STORES, PRODUCTS, FEATURES = 300, 80, 12


def sales_table(days, seed):
    gen = torch.Generator().manual_seed(seed)
    rows = days * STORES
    day = torch.arange(days).repeat_interleave(STORES)
    frame = pd.DataFrame(
        {
            "store": torch.arange(STORES).repeat(days).numpy(),
            "product": torch.randint(PRODUCTS, (rows,), generator=gen).numpy(),
            "weekday": (day % 7).numpy(),
            "price": (1 + 0.2 * torch.randn(rows, generator=gen)).numpy(),
            "promo": (torch.rand(rows, generator=gen) < 0.1).float().numpy(),
            "year": torch.sin(day * 2 * torch.pi / 365).numpy(),
            "temp": (15 - 9 * torch.cos(day * 2 * torch.pi / 365) + 3 * torch.randn(rows, generator=gen)).numpy() / 10,
        }
    )
    rate = 2 + frame.promo * 1.5 - 1.2 * (frame.price - 1) + 0.3 * (frame.weekday > 4) + (frame.store % 9) * 0.1
    frame["sold"] = torch.poisson(torch.tensor(rate.clip(0).to_numpy()).exp(), generator=gen).numpy()
    return frame


class Sales(Dataset):
    def __init__(self, frame):
        self.store = torch.tensor(frame["store"].to_numpy())
        self.product = torch.tensor(frame["product"].to_numpy())
        week = nn.functional.one_hot(torch.tensor(frame["weekday"].to_numpy()), 7).float()
        rest = torch.tensor(frame[["price", "promo", "year", "temp"]].to_numpy(), dtype=torch.float32)
        self.x = torch.cat([torch.ones(len(frame), 1), week, rest], 1)
        self.sold = torch.tensor(frame["sold"].to_numpy(), dtype=torch.float32)

    def __len__(self):
        return len(self.sold)

    def __getitem__(self, i):
        return {"store": self.store[i], "product": self.product[i], "x": self.x[i], "sold": self.sold[i]}


class Store(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Parameter(torch.zeros(FEATURES))
        self.mix = nn.Parameter(torch.randn(FEATURES, 8) * 0.1)
        self.taste = nn.Parameter(torch.randn(8) * 0.1)
        self.bias = nn.Parameter(torch.zeros(()))


class Demand(L.LightningModule):
    def __init__(self, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stores = nn.ModuleList(Store() for _ in range(STORES))
        self.products = nn.Embedding(PRODUCTS, 8)

    def forward(self, b):
        linear = torch.stack([s.linear for s in self.stores])[b["store"]]
        mix = torch.stack([s.mix for s in self.stores])[b["store"]]
        taste = torch.stack([s.taste for s in self.stores])[b["store"]]
        bias = torch.stack([s.bias for s in self.stores])[b["store"]]
        hidden = torch.tanh(torch.einsum("bf,bfk->bk", b["x"], mix)) + taste
        return bias + (linear * b["x"]).sum(1) + (hidden * self.products(b["product"])).sum(1)

    def step(self, b, name):
        loss = nn.functional.poisson_nll_loss(self(b), b["sold"])
        self.log(f"{name}_nll", loss, prog_bar=True, batch_size=len(b["sold"]))
        return loss

    def training_step(self, batch, batch_idx):
        return self.step(batch, "train")

    def validation_step(self, batch, batch_idx):
        self.step(batch, "val")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)


if __name__ == "__main__":
    L.seed_everything(8)
    train = DataLoader(Sales(sales_table(700, 1)), batch_size=512, shuffle=True, drop_last=True)
    val = DataLoader(Sales(sales_table(20, 2)), batch_size=512)
    keep = ModelCheckpoint(monitor="val_nll", dirpath="demand_ckpt", save_top_k=1)
    L.Trainer(accelerator="auto", max_epochs=300, callbacks=[keep], logger=False).fit(Demand(), train, val)
