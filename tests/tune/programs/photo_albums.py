import io

import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Albums(Dataset):
    """JPEG files in memory, decoded and augmented when they are asked for."""

    def __init__(self, count=1920):
        rng = np.random.default_rng(0)
        self.files = []
        for _ in range(64):
            buffer = io.BytesIO()
            noise = Image.fromarray(rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)).resize((320, 240))
            noise.save(buffer, "JPEG", quality=90)
            self.files.append(buffer.getvalue())
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        image = image.filter(ImageFilter.GaussianBlur(1)).resize((64, 64), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255, index % 10


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = F.cross_entropy(self.body(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


if __name__ == "__main__":
    loader = DataLoader(Albums(), batch_size=32, shuffle=True)
    Trainer(max_epochs=500, accelerator="cpu").fit(Net(), loader)
