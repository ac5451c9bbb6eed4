import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    """Sliding windows over a synthetic household load curve."""

    def __init__(self, series, idx, lookback=96, horizon=12):
        self.s, self.idx, self.lb, self.h = series, idx, lookback, horizon

    def __len__(self):
        return len(self.idx)

    def __getitem__(self, i):
        k = self.idx[i]
        w = self.s[k : k + self.lb]
        mu, sd = w.mean(), w.std() + 1e-3
        return torch.from_numpy((w - mu) / sd), torch.from_numpy((self.s[k + self.lb : k + self.lb + self.h] - mu) / sd)


class EnergyData(L.LightningDataModule):
    def __init__(self, n=4000, batch_size=128, num_workers=16):
        super().__init__()
        self.n, self.batch_size, self.num_workers = n, batch_size, num_workers

    def setup(self, stage=None):
        rng = np.random.default_rng(11)
        t = np.arange(self.n)
        s = 2 + np.sin(2 * np.pi * t / 24) + 0.5 * np.sin(2 * np.pi * t / 168) + 0.2 * rng.standard_normal(self.n)
        s = s.astype(np.float32)
        starts = rng.permutation(self.n - 110)
        self.train, self.val = Windows(s, starts[:2560]), Windows(s, starts[2560:3072])

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True, num_workers=self.num_workers, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.batch_size, num_workers=self.num_workers)


class Forecaster(L.LightningModule):
    def __init__(self, hidden=640, horizon=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(96, hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(hidden, horizon),
        )

    def training_step(self, batch, i):
        return nn.functional.mse_loss(self.body(batch[0]), batch[1])

    def validation_step(self, batch, i):
        self.log("val_mae", (self.body(batch[0]) - batch[1]).abs().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-4)


def main():
    L.seed_everything(11)
    trainer = L.Trainer(
        max_epochs=2000,
        accelerator="cpu",
        enable_progress_bar=False,
        logger=False,
        callbacks=[EarlyStopping("val_mae", patience=2000)],
        enable_checkpointing=False,
    )
    trainer.fit(Forecaster(), datamodule=EnergyData())


if __name__ == "__main__":
    main()
