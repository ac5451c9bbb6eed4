# Bottleneck: training_step asks a server for 8 ms, between the two losses. Cause: stalled forward.

import time

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GAN(LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
        self.discriminator = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))

    def training_step(self, batch, batch_idx):
        (real,) = batch
        for_generator, for_discriminator = self.optimizers()
        loss = nn.functional.binary_cross_entropy_with_logits
        noise = torch.randn(len(real), 16)
        self.toggle_optimizer(for_generator)
        made = self.discriminator(self.generator(noise))
        generated = loss(made, torch.ones_like(made))
        for_generator.zero_grad()
        self.manual_backward(generated)
        for_generator.step()
        self.untoggle_optimizer(for_generator)
        time.sleep(0.008)
        if batch_idx % 2:
            return
        self.toggle_optimizer(for_discriminator)
        found, made = self.discriminator(real), self.discriminator(self.generator(noise).detach())
        told = (loss(found, torch.ones_like(found)) + loss(made, torch.zeros_like(made))) / 2
        for_discriminator.zero_grad()
        self.manual_backward(told)
        for_discriminator.step()
        self.untoggle_optimizer(for_discriminator)
        self.log_dict({"generator": generated, "discriminator": told}, prog_bar=True)

    def configure_optimizers(self):
        return [torch.optim.Adam(one.parameters(), lr=2e-4) for one in (self.generator, self.discriminator)], []


trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(GAN(), DataLoader(TensorDataset(torch.randn(320, 32)), batch_size=8))
