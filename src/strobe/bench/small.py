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
        features: Tensor = self.conv2(self.conv1(images).relu()).relu().mean((2, 3))
        logits: Tensor = self.head(features)
        return logits
