"""Bottlenecks of known causes, which the grid puts into short runs by existing keys of the configuration.

    python train.py +callbacks.slow._target_=strobe.validation.injected_faults.SlowCallback +callbacks.slow.seconds=0.03

A wait stands for work that another machine does (a network file system, a tracking server): it costs no core.
"""

import time
from typing import Any

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from strobe.app.loaders.sources import TileSource
from strobe.app.loaders.tifffile import TifffileLoader
from strobe.app.model.classifier import ImageClassifier
from strobe.bench.small import SmallNetwork

POOLS = 3


class SlowCallback(Callback):
    """Waits ``seconds`` at the end of each training step."""

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds

    def on_train_batch_end(self, *_: Any) -> None:
        """Wait."""
        time.sleep(self.seconds)


class SlowLogger(CSVLogger):
    """Waits ``seconds`` whenever metrics are logged, as for a server's answer."""

    def __init__(self, *, seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self.seconds = seconds

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        """Wait, and log."""
        time.sleep(self.seconds)
        super().log_metrics(metrics, step)


class SlowDisk(TifffileLoader):
    """Waits ``seconds`` before it reads a file: more workers wait at the same time, on however few cores."""

    def __init__(self, *, seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self.seconds = seconds

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        """Wait, and read."""
        time.sleep(self.seconds)
        return super().read(path, source)


class WideNetwork(SmallNetwork):
    """As much computing, and a table of 8 million weights more, of which each image uses little."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.table = nn.Parameter(torch.zeros(1 << 23))

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        return super().forward(images) + self.table.mean()


class PooledNetwork(SmallNetwork):
    """Pooling besides, which takes twice as long on a CPU channels first as channels last."""

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        features = self.conv1(images)
        for _ in range(POOLS):
            features = functional.max_pool2d(features, kernel_size=3, stride=1, padding=1)
        logits: Tensor = self.head(self.conv2(features.relu()).relu().mean((2, 3)))
        return logits


class SmallClassifier(ImageClassifier):
    """So small a network that a run of seconds holds hundreds of steps, and that loading can be what limits it."""

    kind: type[SmallNetwork] = SmallNetwork

    def build_network(self, *, channels: int, classes: int, stem: str, weights: str | None) -> SmallNetwork:
        """The small network, whatever the stem; it starts at random."""
        return self.kind(channels, classes)


class WideClassifier(SmallClassifier):
    """One whose optimizer has much to do."""

    kind = WideNetwork


class PooledClassifier(SmallClassifier):
    """One that suffers from the wrong memory layout."""

    kind = PooledNetwork
