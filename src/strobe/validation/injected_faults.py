"""Bottlenecks of known causes, which the grid puts into short runs by existing keys of the configuration.

    python train.py +callbacks.slow._target_=strobe.validation.injected_faults.SlowCallback +callbacks.slow.seconds=0.03

A wait stands for work that another machine does (a network file system, a tracking server): it costs no core.
"""

import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from strobe.app.data.image_folder import ImageFolder
from strobe.app.loaders.sources import TileSource
from strobe.app.loaders.tifffile import TifffileLoader
from strobe.app.model.classifier import ImageClassifier
from strobe.bench.small import SmallNetwork

POOLS = 3


def compute(seconds: float) -> None:
    """Keep a core busy for so long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class SlowCallback(Callback):
    """Waits ``seconds`` at the end of each training step, or computes for so long."""

    def __init__(self, *, seconds: float, busy: bool = False) -> None:
        self.seconds, self.busy = seconds, busy

    def on_train_batch_end(self, *_: Any) -> None:
        """Wait, or compute."""
        (compute if self.busy else time.sleep)(self.seconds)


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


class UnevenDisk(SlowDisk):
    """Waits for one file in a hundred: for one batch in a few, as a storage that stalls now and then."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        """Wait if it is one of those, and read."""
        if zlib.crc32(path.encode()) % 100:
            return TifffileLoader.read(self, path, source)
        return super().read(path, source)


class SmallPhotos(ImageFolder):
    """Photos of 64x64 pixels, made below ``data.root`` on first use: the usual ``data.size`` enlarges them."""

    side, classes_made, each = 64, 4, 160

    def prepare_data(self) -> None:
        """Make the photos, unless they are there."""
        root, random = Path(self.root), np.random.default_rng(0)
        for number in range(0 if root.exists() else self.classes_made * self.each):
            folder = root / f"class{number % self.classes_made}"
            folder.mkdir(parents=True, exist_ok=True)
            coarse = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((self.side, self.side)).save(folder / f"{number}.jpg")


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


class EnlargingClassifier(SmallClassifier):
    """One that enlarges its images four times, as for weights of a network that was trained on larger ones."""

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        return super().forward(functional.interpolate(images, scale_factor=4))


class WideClassifier(SmallClassifier):
    """One whose optimizer has much to do."""

    kind = WideNetwork


class WaitingClassifier(SmallClassifier):
    """One that waits in one place of each step, as for a server or a lock."""

    place = "step"
    seconds = 0.05

    def training_step(self, *given: Any) -> Any:
        """Wait, and train."""
        self._wait("step")
        return super().training_step(*given)

    def on_before_optimizer_step(self, *_: Any) -> None:
        """Wait before the update."""
        self._wait("hook")

    def optimizer_step(self, *given: Any, **named: Any) -> None:
        """Update, and wait."""
        super().optimizer_step(*given, **named)
        self._wait("update")

    def _wait(self, place: str) -> None:
        if place == self.place:
            time.sleep(self.seconds)


class WaitingUpdateClassifier(WaitingClassifier):
    """One whose update waits, as for other machines' gradients."""

    place = "update"


class WaitingHookClassifier(WaitingClassifier):
    """One with a slow hook before the update, as one that logs norms of gradients."""

    place = "hook"


class LeakingClassifier(SmallClassifier):
    """One that keeps something of each step, and goes through all of it in the next."""

    def training_step(self, *given: Any) -> Any:
        """Go through what was kept, and train."""
        self.kept = [*getattr(self, "kept", []), 0.0]
        compute(2e-4 * len(self.kept))
        return super().training_step(*given)


class PooledClassifier(SmallClassifier):
    """One that suffers from the wrong memory layout."""

    kind = PooledNetwork
