"""A network so small that something else is the bottleneck."""

from torch import Tensor, nn


class SmallNetwork(nn.Module):
    """Two convolutions and a linear layer; images (N, C, H, W) to logits (N, classes)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, kernel_size=4, stride=4)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=3, stride=2, padding=1)
        self.head = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.conv2(self.features(images)).relu().mean((2, 3)))
        return logits

    def features(self, images: Tensor) -> Tensor:
        """The first layer's (N, 32, H / 4, W / 4), in which another network does more."""
        found: Tensor = self.conv1(images).relu()
        return found
