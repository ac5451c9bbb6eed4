import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(int(os.environ.get("TRAIN_THREADS", "16")))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.convolve = nn.Conv1d(width, width, 5, padding=2)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return x + torch.relu(self.norm(self.convolve(x)))


class Signals(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(4, 48, 7, padding=3), *(Block(48) for _ in range(6)))
        self.head = nn.Linear(48, 5)

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.head(self.net(x).mean(-1)), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


x, y = torch.randn(3200, 4, 256), torch.randint(0, 5, (3200,))
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
L.Trainer(max_epochs=500, accelerator="cpu", logger=False, enable_checkpointing=False).fit(Signals(), loader)
