import argparse
import time

import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset


class Archive(Dataset):
    """Series that a store on the network answers with, some milliseconds after each request."""

    def __init__(self, latency):
        self.latency = latency

    def __len__(self):
        return 3200

    def __getitem__(self, index):
        time.sleep(self.latency)
        values = torch.sin(torch.arange(256) * (1 + index % 7) / 30)
        return values, values.roll(1)


class Forecaster(L.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.model = torch.nn.GRU(1, width, batch_first=True)
        self.head = torch.nn.Linear(width, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        states, _ = self.model(x[:, ::8, None])
        return torch.nn.functional.mse_loss(self.head(states).squeeze(-1), y[:, ::8])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.004)
    parser.add_argument("--width", type=int, default=32)
    args = parser.parse_args()
    loader = DataLoader(Archive(args.latency), batch_size=32, num_workers=1, persistent_workers=True)
    trainer = L.Trainer(max_epochs=500, accelerator="cpu", enable_checkpointing=False)
    trainer.fit(Forecaster(args.width), loader)


main()
