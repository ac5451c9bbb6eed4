import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

pl.seed_everything(7, workers=True)

# ---- data: fake ECG = periodic spikes + baseline wander, with noise on two channels
N, LEN = 2000, 128
g = torch.Generator().manual_seed(7)
t = torch.linspace(0, 4, LEN)
rate = 0.8 + 0.8 * torch.rand(N, 1, generator=g)
phase = torch.rand(N, 1, generator=g)
clean = torch.exp(-200 * (((t * rate + phase) % 1.0) - 0.5) ** 2) + 0.1 * torch.sin(2 * t + 6 * phase)
noisy = torch.stack([clean + 0.3 * torch.randn(N, LEN, generator=g) for _ in range(2)], 1)
full = TensorDataset(noisy, clean.unsqueeze(1))
train_set, val_set = random_split(full, [1800, 200], generator=g)


class ResBlock(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.conv = nn.Conv1d(c, c, 3, padding=d, dilation=d)
        self.mix = nn.Conv1d(c, c, 1)

    def forward(self, x):
        return x + self.mix(torch.relu(self.conv(x)))


class Denoiser(pl.LightningModule):
    def __init__(self, width=24, depth=3):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(2, width, 1), *[ResBlock(width, 2**i) for i in range(depth)], nn.Conv1d(width, 1, 1)
        )

    def forward(self, x):
        return self.net(x)

    def step(self, batch, name):
        x, y = batch
        loss = nn.functional.smooth_l1_loss(self(x), y)
        self.log(f"{name}/loss", loss, prog_bar=True)
        return loss

    def training_step(self, batch, batch_idx):
        return self.step(batch, "train")

    def validation_step(self, batch, batch_idx):
        self.step(batch, "val")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=2e-3)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, 100)}


trainer = pl.Trainer(
    max_epochs=100,
    precision="bf16-mixed",
    gradient_clip_val=1.0,
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(
    Denoiser(),
    DataLoader(train_set, batch_size=16, shuffle=True),
    DataLoader(val_set, batch_size=50),
)
