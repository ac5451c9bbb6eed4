"""What a published training pipeline does to each crop of a photo after decoding it, and a training step after that.

The pipeline is that of a study of decode-and-crop, which saw its step go from 0.72 s to 0.48 s when only the crop was
decoded: a random mask, another colour space, scaling.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from strobe.bench.faults import SmallNetwork

CLASSES = 10
MASKED = 0.25  # of the pixels, before each grows to its four neighbours
COLOURS = torch.tensor([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
OFFSETS = torch.tensor([0.0, 128.0, 128.0]).view(3, 1, 1)


def prepare(crop: Tensor, generator: np.random.Generator) -> Tensor:
    """A crop (3, H, W) uint8, masked at random, as YCbCr in [0, 1]: (3, H, W) float32."""
    shape = crop.shape
    masked = crop.float().masked_fill_(torch.from_numpy(_mask(shape[1:], generator)), 0)
    return torch.matmul(COLOURS, masked.view(3, -1)).view(shape).add_(OFFSETS).div_(255)


def _mask(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.bool_]:
    chosen = generator.random(shape, dtype=np.float32) < MASKED
    grown = chosen.copy()
    grown[1:] |= chosen[:-1]
    grown[:-1] |= chosen[1:]
    grown[:, 1:] |= chosen[:, :-1]
    grown[:, :-1] |= chosen[:, 1:]
    return grown


class Step:
    """A training step of a network so small that the loader sets the pace, as it did in the study."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.network = SmallNetwork(3, CLASSES)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01)

    def __call__(self, images: Tensor) -> None:
        """Train on every fourth pixel of images (N, 3, H, W)."""
        labels = torch.arange(len(images)) % CLASSES
        self.optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(self.network(images[..., ::4, ::4]), labels))
        self.optimizer.step()
