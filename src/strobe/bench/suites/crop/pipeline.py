"""What a published training pipeline does to each crop of a photo after decoding it, and a training step after that.

The pipeline is that of a study of decode-and-crop, which saw its step go from 0.72 s to 0.48 s when only the crop was
decoded: a random mask, another colour space, scaling. Each part is a range of its own in a trace, as in the study.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import record_function
from torch.utils.data import IterableDataset, get_worker_info

from strobe.bench.small import SmallNetwork
from strobe.bench.suites.crop.decoders import Decode, Places

CLASSES = 10
MASKED = 0.25  # of the pixels, before each grows to its four neighbours
COLOURS = torch.tensor([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
OFFSETS = torch.tensor([0.0, 128.0, 128.0]).view(3, 1, 1)
DECODE, MASK, COLOUR, SCALE, STEP = "decode_and_crop_jpeg", "random_mask", "convert_color", "scale", "train_step"
RANGES = (DECODE, MASK, COLOUR, SCALE, STEP)


def prepare(crop: Tensor, generator: np.random.Generator) -> Tensor:
    """A crop (3, H, W) uint8, masked at random, as YCbCr in [0, 1]: (3, H, W) float32."""
    with record_function(MASK):
        masked = crop.float().masked_fill_(torch.from_numpy(_mask(crop.shape[1:], generator)), 0)
    with record_function(COLOUR):
        converted = torch.matmul(COLOURS, masked.view(3, -1)).view(crop.shape).add_(OFFSETS)
    with record_function(SCALE):
        return converted.div_(255)


def _mask(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.bool_]:
    chosen = generator.random(shape, dtype=np.float32) < MASKED
    grown = chosen.copy()
    grown[1:] |= chosen[:-1]
    grown[:-1] |= chosen[1:]
    grown[:, 1:] |= chosen[:, :-1]
    grown[:, :-1] |= chosen[:, 1:]
    return grown


class Prepared(IterableDataset[Tensor]):
    """Crops as the pipeline makes them, without an end; each worker process has its own order."""

    def __init__(self, places: Places, decode: Decode) -> None:
        self.places = places
        self.decode = decode

    def __iter__(self) -> Iterator[Tensor]:
        worker = get_worker_info()
        seed = worker.id if worker else 0
        generator = np.random.default_rng(seed)
        for place in self.places.drawn(seed):
            with record_function(DECODE):
                crop = self.decode(*place)
            yield prepare(crop, generator)


class Step:
    """A training step of a network so small that the loader sets the pace, as it did in the study."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        self.network = SmallNetwork(3, CLASSES).to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01)

    def __call__(self, images: Tensor) -> None:
        """Train on every fourth pixel of images (N, 3, H, W)."""
        with record_function(STEP):
            images = images.to(self.device)
            labels = torch.arange(len(images), device=self.device) % CLASSES
            self.optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(self.network(images[..., ::4, ::4]), labels))
            self.optimizer.step()
            if self.device.type == "cuda":  # inside the range: else its time is that of sending the work off
                torch.cuda.synchronize(self.device)
