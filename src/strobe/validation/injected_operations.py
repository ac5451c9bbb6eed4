"""Operations that a step could leave out, or do at once, for the grid too: what ``callbacks/wasted.py`` looks for."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from strobe.bench.small import SmallNetwork
from strobe.validation.injected_faults import SmallClassifier


class FilteringNetwork(SmallNetwork):
    """A network that blurs its images by a bank of filters, which it builds anew in each step."""

    def forward(self, images: Tensor) -> Tensor:
        places = torch.arange(201.0) - 100
        filters = []
        for width in torch.linspace(1, 8, 12).tolist():
            for angle in torch.linspace(0, 3, 12).tolist():
                turned = places[:, None] * torch.cos(torch.tensor(angle)) + places * torch.sin(torch.tensor(angle))
                filters.append((-(turned**2) / width).exp().mean())
        return super().forward(images * torch.stack(filters).mean())


class AgainClassifier(SmallClassifier):
    """One that predicts anew for each of its metrics."""

    def training_step(self, batch: Any, *given: Any) -> Any:
        for rank in (1, 2, 3):
            best = self(batch[0]).topk(rank).indices
            self.log(f"train/top{rank}", (best == batch[1][:, None]).any(1).float().mean())
        return super().training_step(batch, *given)


class DecodingNetwork(SmallNetwork):
    """A network with a decoder, whose picture only another training needs."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.decoder = nn.Sequential(
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2)),
            *(nn.Conv2d(64, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, channels, 3, padding=1)),
        )

    def forward(self, images: Tensor) -> Tensor:
        self.decoder(self.conv1(images))
        return super().forward(images)


class GraphNetwork(SmallNetwork):
    """A network that smooths its images over a graph of their 32x32 pixels, whose matrix is stored by coordinates."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        neighbours = (torch.arange(1024)[:, None] + torch.arange(64) * 31) % 1024
        places = torch.stack([torch.arange(1024).repeat_interleave(64), neighbours.flatten()])
        self.graph = torch.sparse_coo_tensor(places, torch.full((65536,), 1 / 64), (1024, 1024), check_invariants=True)

    def forward(self, images: Tensor) -> Tensor:
        pixels = (images * self.scale).flatten(2).flatten(0, 1).T
        return super().forward(torch.sparse.mm(self.graph, pixels).T.reshape(images.shape))


class OneHotClassifier(SmallClassifier):
    """One that looks up a table of colours by one-hot vectors."""

    def training_step(self, batch: Any, *given: Any) -> Any:
        places = (batch[0].flatten(1).float() * 15).long() % 4096
        table = torch.linspace(0, 1, 4096 * 16).view(4096, 16)
        self.looked_up = functional.one_hot(places[:, :16].flatten(), 4096).float() @ table
        return super().training_step(batch, *given)


class ContextNetwork(SmallNetwork):
    """A network that repeats what it knows of an image for each of its 64 places, and only then computes with it."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.context = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 32))

    def features(self, images: Tensor) -> Tensor:
        features = super().features(images)
        known = features.mean((2, 3))[:, None].expand(-1, 64, -1)
        both: Any = features.flatten(2).transpose(1, 2) + self.context(known)
        found: Tensor = both.transpose(1, 2).unflatten(2, (8, 8))
        return found


class FadingNetwork(SmallNetwork):
    """A network that looks at the middle of an image: a narrow Gaussian window leaves next to nothing of its edges."""

    def features(self, images: Tensor) -> Tensor:
        features = super().features(images)
        return features * torch.linspace(-9.4, 9.4, features.shape[-1]).square().neg().exp()


class DoubleNetwork(SmallNetwork):
    """A network that mixes the places of an image by a matrix of NumPy's, and so in float64."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.mixing = torch.from_numpy(np.cos(np.outer(np.arange(64), np.arange(512))))

    def features(self, images: Tensor) -> Tensor:
        features = super().features(images)
        mixed = torch.tanh(features.flatten(2).to(self.mixing.dtype) @ self.mixing)
        return features + (mixed @ self.mixing.T / 512).float().view_as(features)


class SpectralNetwork(SmallNetwork):
    """A network that smooths the features of an image along its places, by Fourier transforms of a prime length."""

    def features(self, images: Tensor) -> Tensor:
        features = super().features(images)
        places, length = features[0].numel(), 4099
        kernel = torch.linspace(0, 3, places).neg().exp()
        spectrum = torch.fft.rfft(features.flatten(1), n=length) * torch.fft.rfft(kernel, n=length)
        smooth: Tensor = torch.fft.irfft(spectrum, n=length)[:, :places].view_as(features)
        return features + smooth


class AdaptedNetwork(SmallNetwork):
    """A network whose frozen layer is adapted by a product of thin matrices, which it adds to the weights each time."""

    frozen: Tensor

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.register_buffer("frozen", torch.randn(2048, 2048) / 64)
        self.up, self.down = nn.Parameter(torch.zeros(2048, 8)), nn.Parameter(torch.randn(8, 2048) / 64)

    def features(self, images: Tensor) -> Tensor:
        features = super().features(images)
        adapted = functional.linear(features.flatten(1), self.frozen + 2 * (self.up @ self.down))
        return adapted.view_as(features)


class AttentiveNetwork(SmallNetwork):
    """A network that lets the 64 places of an image attend to each other, by a softmax between two products."""

    def features(self, images: Tensor) -> Tensor:
        places: Any = super().features(images).flatten(2).transpose(1, 2).contiguous()
        for _ in range(4):
            heads = places.unflatten(2, (2, 16)).transpose(1, 2)
            weights = (heads @ heads.transpose(2, 3) / 4).softmax(-1)
            places = places + (weights @ heads).transpose(1, 2).flatten(2)
        found: Tensor = places.transpose(1, 2).unflatten(2, (8, 8))
        return found


class FullSizeNetwork(SmallNetwork):
    """A network that fades its images at full size: of a batch of 512 each result is larger than what malloc keeps."""

    def forward(self, images: Tensor) -> Tensor:
        wide = images.repeat_interleave(6, 1)
        for _ in range(8):
            wide = functional.leaky_relu(wide)
        return super().forward(wide.view(len(wide), -1, 6, *wide.shape[2:]).mean(2))


class CodebookClassifier(SmallClassifier):
    """One that finds the nearest of 64 codes for each of its patches, by all differences."""

    def training_step(self, batch: Any, *given: Any) -> Any:
        patches = functional.avg_pool2d(batch[0].float(), 4).permute(0, 2, 3, 1).reshape(-1, 3).repeat(1, 8)
        codes = torch.linspace(0, 1, 32 * 24).view(32, 24)
        self.nearest = (patches[:, None] - codes).pow(2).sum(2).argmin(1)
        return super().training_step(batch, *given)


class QueueClassifier(SmallClassifier):
    """One that keeps the colours of its last 400,000 patches, and copies all of them for those of a batch."""

    queue: torch.Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.register_buffer("queue", torch.zeros(400_000, 24), persistent=False)

    def training_step(self, batch: Any, *given: Any) -> Any:
        colours = functional.avg_pool2d(batch[0].float(), 8).permute(0, 2, 3, 1).reshape(-1, 3).repeat(1, 8)
        self.queue = torch.cat([self.queue[len(colours) :], colours])
        return super().training_step(batch, *given)


class ImageByImageClassifier(SmallClassifier):
    """One that augments its batch image by image."""

    def training_step(self, batch: Any, *given: Any) -> Any:
        images = [(image.float() * torch.rand(3, 1, 1) - image.float().mean()).roll(1, 2) for image in batch[0]]
        return super().training_step((torch.stack(images), batch[1]), *given)


class TeacherClassifier(SmallClassifier):
    """One that learns from another network, and computes the gradients of that one, too."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.teacher = nn.Sequential(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 2), nn.ReLU())

    def training_step(self, batch: Any, *given: Any) -> Any:
        return super().training_step(batch, *given) + 0 * self.teacher(batch[0]).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.network.parameters(), lr=0.01)
