# Bottleneck: the logger writes to a network disk for 10 ms a step. Cause: logging OnTheNetwork.

import time

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset


class OnTheNetwork(CSVLogger):
    def log_metrics(self, metrics, step=None):
        time.sleep(0.01)
        super().log_metrics(metrics, step)


class Scenes(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        return {
            "name": f"scene {index}",
            "views": {"left": torch.randn(16), "right": torch.randn(16)},
            "label": index % 2,
        }


class Stereo(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)

    def training_step(self, batch, batch_idx):
        views = torch.cat([batch["views"]["left"], batch["views"]["right"]], dim=1)
        loss = torch.nn.functional.cross_entropy(self.layer(views), batch["label"])
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


trainer = Trainer(
    max_epochs=1, accelerator="cpu", logger=OnTheNetwork("logs"), log_every_n_steps=1, enable_progress_bar=False
)
trainer.fit(Stereo(), DataLoader(Scenes(), batch_size=4))
