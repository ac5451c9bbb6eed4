"""Forecast tomorrow's river levels from the past week at the gauges of a catchment."""

import argparse

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAST, AHEAD = 168, 24


def make_catchment(n_gauges, hours, seed=7):
    """Rain pulses through a chain of leaky reservoirs, with a yearly cycle."""
    rng = np.random.default_rng(seed)
    rain = rng.gamma(0.25, 3.0, size=(n_gauges, hours)) * (rng.random((n_gauges, hours)) < 0.08)
    level = np.zeros((n_gauges, hours), dtype=np.float32)
    leak = rng.uniform(0.94, 0.99, n_gauges)
    state = np.zeros(n_gauges)
    for t in range(hours):
        state = leak * state + rain[:, t]
        level[:, t] = state
    level += 4 * np.sin(np.arange(hours) * 2 * np.pi / 8760).astype(np.float32)
    level = (level - level.mean(1, keepdims=True)) / level.std(1, keepdims=True)
    return np.stack([level, rain.astype(np.float32)], axis=1)


class Windows(Dataset):
    def __init__(self, series, first, last, stride):
        self.series = series
        starts = np.arange(first, last - PAST - AHEAD, stride)
        gauges = np.arange(len(series))
        self.index = np.stack(np.meshgrid(gauges, starts), -1).reshape(-1, 2)

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        g, t = self.index[i]
        past = self.series[g, :, t : t + PAST]
        future = self.series[g, 0, t + PAST : t + PAST + AHEAD]
        return torch.from_numpy(past), torch.from_numpy(future)


class Catchment(L.LightningDataModule):
    def __init__(self, gauges, hours, batch_size):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        hp = self.hparams
        series = make_catchment(hp.gauges, hp.hours)
        cut = int(hp.hours * 0.85)
        self.train_set = Windows(series, 0, cut, stride=3)
        self.val_set = Windows(series, cut, hp.hours, stride=24)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.hparams.batch_size)


class TCN(L.LightningModule):
    def __init__(self, hidden=64, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        layers, width = [], 2
        for dilation in (1, 2, 4, 8, 16):
            layers += [
                nn.Conv1d(width, hidden, 3, padding=dilation, dilation=dilation),
                nn.BatchNorm1d(hidden),
                nn.ReLU(),
            ]
            width = hidden
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(hidden * 2, AHEAD)

    def forward(self, x):
        h = self.body(x)
        return self.head(torch.cat([h[..., -1], h.mean(-1)], 1)) + x[:, :1, -1]

    def training_step(self, batch, _):
        loss = nn.functional.smooth_l1_loss(self(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        pred, future = self(batch[0]), batch[1]
        self.log("val_mae", (pred - future).abs().mean(), prog_bar=True)
        self.log("val_nse", 1 - ((pred - future) ** 2).sum() / ((future - future.mean()) ** 2).sum())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    for name, default in (("gauges", 60), ("hours", 30000), ("batch-size", 64), ("hidden", 64), ("epochs", 200)):
        p.add_argument(f"--{name}", type=int, default=default)
    a = p.parse_args()
    L.seed_everything(3)
    trainer = L.Trainer(
        accelerator="auto",
        max_epochs=a.epochs,
        val_check_interval=25,
        gradient_clip_val=1.0,
        logger=CSVLogger("runs", name="river"),
        callbacks=[ModelCheckpoint(monitor="val_mae", filename="best-{val_mae:.3f}")],
    )
    trainer.fit(TCN(a.hidden), Catchment(a.gauges, a.hours, a.batch_size))
