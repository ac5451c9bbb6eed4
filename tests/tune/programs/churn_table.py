import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class ChurnData(pl.LightningDataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        generator = torch.Generator().manual_seed(1)
        rows = torch.randn(8000, 40, generator=generator)
        churned = (rows[:, :3].sum(1) > 0).float()
        self.train, self.val = random_split(TensorDataset(rows, churned), [7200, 800], generator)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.batch_size)


class Churn(pl.LightningModule):
    def __init__(self):
        super().__init__()
        layers = [nn.Linear(40, 64), nn.ReLU()]
        for _ in range(12):
            layers += [nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.binary_cross_entropy_with_logits(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", ((self(x) > 0) == (y > 0)).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    pl.seed_everything(7)
    pl.Trainer(max_epochs=500, accelerator="cpu").fit(Churn(), datamodule=ChurnData())
