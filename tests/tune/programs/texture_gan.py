"""Small DCGAN that learns fabric textures (or CIFAR images if STROBE_DATA points at them)."""

import os
import pickle
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.utils import make_grid


def load_images(n=16000):
    batch = Path(os.environ.get("STROBE_DATA", "")) / "cifar10/cifar-10-batches-py/data_batch_1"
    if os.environ.get("STROBE_DATA") and batch.exists():
        raw = pickle.loads(batch.read_bytes(), encoding="bytes")[b"data"].reshape(-1, 3, 32, 32)
        images = raw.astype(np.float32) / 127.5 - 1
    else:
        rng = np.random.default_rng(0)
        y, x = np.mgrid[:32, :32].astype(np.float32)
        freq, phase = rng.uniform(0.2, 1.2, (2, n, 3, 1, 1)), rng.uniform(0, 6, (n, 3, 1, 1))
        images = np.sin(freq[0] * x + phase) * np.cos(freq[1] * y)
    return torch.from_numpy(images.astype(np.float32))


def up(i, o):
    return nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))


def down(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, True))


class TextureGAN(L.LightningModule):
    def __init__(self, z=64, width=16):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.G = nn.Sequential(
            nn.ConvTranspose2d(z, 4 * width, 4),
            nn.ReLU(True),
            up(4 * width, 4 * width),
            up(4 * width, 2 * width),
            nn.ConvTranspose2d(2 * width, 3, 4, 2, 1),
            nn.Tanh(),
        )
        self.D = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            down(width, 2 * width),
            down(2 * width, 4 * width),
            nn.Conv2d(4 * width, 1, 4),
        )
        self.register_buffer("fixed_z", torch.randn(16, z, 1, 1))

    def training_step(self, batch, batch_idx):
        (real,) = batch
        opt_g, opt_d = self.optimizers()
        fake = self.G(torch.randn(len(real), self.hparams.z, 1, 1, device=self.device))

        self.toggle_optimizer(opt_d)
        d_loss = F.softplus(-self.D(real)).mean() + F.softplus(self.D(fake.detach())).mean()
        opt_d.zero_grad()
        self.manual_backward(d_loss)
        opt_d.step()
        self.untoggle_optimizer(opt_d)

        self.toggle_optimizer(opt_g)
        fake = self.G(torch.randn(len(real), self.hparams.z, 1, 1, device=self.device))
        g_loss = F.softplus(-self.D(fake)).mean()
        opt_g.zero_grad()
        self.manual_backward(g_loss)
        opt_g.step()
        self.untoggle_optimizer(opt_g)
        self.log_dict({"loss/g": g_loss, "loss/d": d_loss}, prog_bar=True)

    def configure_optimizers(self):
        return [torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (self.G, self.D)]


class Watch(L.Callback):
    """Weights, gradients and samples to TensorBoard, as often as the Trainer logs."""

    def __init__(self):
        self.count = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.count += 1
        if self.count % trainer.log_every_n_steps:
            return
        board = trainer.logger.experiment
        for name, p in module.named_parameters():
            board.add_histogram(f"weight/{name}", p.detach(), self.count, bins="auto")
            if p.grad is not None:
                board.add_histogram(f"grad/{name}", p.grad, self.count, bins="auto")
        with torch.no_grad():
            board.add_image("samples", make_grid(module.G(module.fixed_z) / 2 + 0.5, nrow=4), self.count)


if __name__ == "__main__":
    L.seed_everything(99)
    loader = DataLoader(TensorDataset(load_images()), batch_size=32, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=150,
        log_every_n_steps=1,
        logger=TensorBoardLogger("runs", name="texture_gan"),
        callbacks=[Watch()],
        enable_checkpointing=False,
    )
    trainer.fit(TextureGAN(), loader)
