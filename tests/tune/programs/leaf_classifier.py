import argparse
import math

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T


def draw_leaf(rng, species):
    img = Image.new("RGB", (160, 160), tuple(int(v) for v in rng.integers(150, 255, 3)))
    d = ImageDraw.Draw(img)
    pts = []
    for a in np.linspace(0, 2 * math.pi, 60):
        r = 45 + 12 * math.sin((species + 2) * a) + rng.normal(0, 1.5)
        pts.append((80 + r * math.cos(a), 80 + 0.7 * r * math.sin(a)))
    d.polygon(pts, fill=(30, int(rng.integers(90, 180)), 40))
    return img


class Leaves(Dataset):
    def __init__(self, n, n_species, seed, train):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, n_species, n)
        self.imgs = [draw_leaf(rng, int(s)) for s in self.y]
        aug = (
            [
                T.RandomRotation(25, T.InterpolationMode.BILINEAR),
                T.RandomResizedCrop(64, scale=(0.5, 1.0)),
                T.RandomHorizontalFlip(),
                T.ColorJitter(0.3, 0.3, 0.3),
            ]
            if train
            else [T.Resize((64, 64))]
        )
        self.tf = T.Compose(aug + [T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.tf(self.imgs[i]), int(self.y[i])


def block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, stride=2, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(),
    )


class LeafNet(L.LightningModule):
    def __init__(self, n_species, lr):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            block(3, 16), block(16, 32), block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, n_species)
        )

    def training_step(self, batch, _):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--lr", type=float, default=0.02)
    args = p.parse_args()
    L.seed_everything(1)
    train = DataLoader(Leaves(1600, 6, 0, True), batch_size=32, shuffle=True)
    trainer = L.Trainer(max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(LeafNet(6, args.lr), train)
