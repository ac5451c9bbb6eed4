import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        self.images = torch.rand(256, 3, 96, 96, generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        return image, (image.mean(0) > 0.5).long()


def double(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(LightningModule):
    def __init__(self, width=16):
        super().__init__()
        self.down1, self.down2, self.middle = double(3, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.up2, self.up1 = double(6 * width, 2 * width), double(3 * width, width)
        self.head = nn.Conv2d(width, 2, 1)
        self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(self.pool(one))
        x = self.grow(self.middle(self.pool(two)))
        x = self.grow(self.up2(torch.cat((x, two), 1)))
        return self.head(self.up1(torch.cat((x, one), 1)))

    def training_step(self, batch, batch_idx):
        images, masks = batch
        loss = nn.functional.cross_entropy(self(images), masks)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    seed_everything(0)
    loader = DataLoader(Shapes(), batch_size=8, shuffle=True, num_workers=2, multiprocessing_context="spawn")
    Trainer(max_epochs=500, accelerator="cpu").fit(UNet(), loader)
