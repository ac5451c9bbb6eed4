"""Bottlenecks of known causes, which the grid puts into short runs by existing keys of the configuration.

    python train.py +callbacks.slow._target_=strobe.validation.injected_faults.SlowCallback +callbacks.slow.seconds=0.03

A wait stands for work that another machine does (a network file system, a tracking server): it costs no core.
"""

import fcntl
import threading
import time
import zlib
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from strobe.app.data.image_folder import ImageFolder
from strobe.app.loaders.memory import MemoryLoader
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


class Slow:
    """Something with ``seconds``, for which it waits besides what its base class does."""

    def __init__(self, *, seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self.seconds = seconds


class StepCallback(Callback):
    """Acts at the end of one in ``every`` training steps."""

    def __init__(self, *, every: int = 1) -> None:
        self.every, self._steps = every, 0

    def on_train_batch_end(self, *given: Any) -> None:
        self._steps += 1
        if self._steps % self.every == 0:
            self.act(*given)

    def act(self, trainer: Any, pl_module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        """What it does."""
        raise NotImplementedError


class SlowCallback(Slow, StepCallback):
    """Waits, or computes for so long if it is ``busy``."""

    def __init__(self, *, busy: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.busy = busy

    def act(self, *_: Any) -> None:
        (compute if self.busy else time.sleep)(self.seconds)


class WeightHistograms(StepCallback):
    """Counts the values of all weights."""

    def act(self, trainer: Any, pl_module: nn.Module, *_: Any) -> None:
        for weights in pl_module.parameters():
            torch.histc(weights.detach(), bins=64)


class SlowLogger(Slow, CSVLogger):
    """Waits ``seconds`` whenever metrics are logged, as for a server's answer."""

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        time.sleep(self.seconds)
        super().log_metrics(metrics, step)


class SlowDisk(Slow, TifffileLoader):
    """Waits ``seconds`` before it reads a file: more workers wait at the same time, on however few cores."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        time.sleep(self.seconds)
        return super().read(path, source)


class UnevenDisk(SlowDisk):
    """Waits for one file in a hundred: for one batch in a few, as a storage that stalls now and then."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        if zlib.crc32(path.encode()) % 100:
            return TifffileLoader.read(self, path, source)
        return super().read(path, source)


class SmallPhotos(ImageFolder):
    """Photos of 64x64 pixels, made below ``data.root`` on first use: ``data.size=224`` enlarges them."""

    side, classes_made, each = 64, 4, 160

    def __init__(self, *, root: str, **common: Any) -> None:
        super().__init__(root=f"{root}/data/photos{self.side}", **common)

    def prepare_data(self) -> None:
        root, random = Path(self.root), np.random.default_rng(0)
        for number in range(0 if root.exists() else self.classes_made * self.each):
            folder = root / f"class{number % self.classes_made}"
            folder.mkdir(parents=True, exist_ok=True)
            coarse = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((self.side, self.side)).save(folder / f"{number}.jpg")


class HoardingTiles(TifffileLoader):
    """Keeps half a megabyte of each file that it reads, as a cache without a bound does."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        self.kept = [*getattr(self, "kept", []), np.ones(1 << 16)]
        return super().read(path, source)


class LockedDisk(SlowDisk):
    """Waits while it holds a lock that all loader processes share: more of them read no faster."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        with Path(__file__).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return super().read(path, source)


class SlowTransform(Slow, MemoryLoader):
    """A transform that waits ``seconds`` for each image, as one that asks a server."""

    def scaled(self, pixels: Tensor, full_scale: float, images: int = 1) -> Tensor:
        for _ in range(images):
            time.sleep(self.seconds)
        return super().scaled(pixels, full_scale, images)


class PacedStream(SlowTransform):
    """A stream that gives one batch in so many seconds, however large it is."""

    def scaled(self, pixels: Tensor, full_scale: float, images: int = 1) -> Tensor:
        return super().scaled(pixels, full_scale, 1)


class PythonAugmentation(MemoryLoader):
    """Augments each image with NumPy, one after the other, in so many ``rounds``."""

    def __init__(self, *, rounds: int, **options: Any) -> None:
        super().__init__(**options)
        self.rounds = rounds

    def scaled(self, pixels: Tensor, full_scale: float, images: int = 1) -> Tensor:
        """Pad, crop, mirror and change the contrast, which leaves the shape as it was."""
        batch = pixels.clone()
        side = batch.shape[-1]
        for image in batch.numpy().reshape(-1, *batch.shape[-3:]):
            for turn in range(self.rounds):
                padded = np.pad(image, ((0, 0), (4, 4), (4, 4)), mode="reflect")
                cropped = padded[:, turn % 8 : turn % 8 + side, 4 : 4 + side][:, :, ::-1]
                image[...] = np.clip(cropped.astype(np.float32) * 1.05 - 3, 0, 255)
        return super().scaled(batch, full_scale, images)


class WideNetwork(SmallNetwork):
    """As much computing, and a table of 8 million weights more, of which each image uses little."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.table = nn.Parameter(torch.zeros(1 << 23))

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) + self.table.mean()


class ManyTensorsNetwork(SmallNetwork):
    """As much computing, and so many gains of one weight each, as in a model of many small layers."""

    def __init__(self, channels: int, classes: int, tensors: int) -> None:
        super().__init__(channels, classes)
        self.gains = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(tensors))

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * torch.cat(list(self.gains)).mean()


class PooledNetwork(SmallNetwork):
    """Pooling besides, which takes twice as long on a CPU channels first as channels last."""

    def features(self, images: Tensor) -> Tensor:
        features: Tensor = self.conv1(images)
        for _ in range(POOLS):
            features = functional.max_pool2d(features, kernel_size=3, stride=1, padding=1)
        return features.relu()


class SmallClassifier(ImageClassifier):
    """So small a network that a run of seconds holds hundreds of steps, and that loading can be what limits it.

    ``small=False`` takes the configured network, for a fault that both can have; ``kind`` is the small one's class.
    ``seconds`` and ``times``: how long, or how often, a fault does what it does; None: as its class has it.
    """

    seconds, times = 0.05, 1

    def __init__(
        self,
        *,
        small: bool = True,
        kind: str = "strobe.bench.small.SmallNetwork",
        seconds: float | None = None,
        times: int | None = None,
        **options: Any,
    ) -> None:
        self.small, self.kind = small, kind
        self.seconds = self.seconds if seconds is None else seconds
        self.times = self.times if times is None else times
        super().__init__(**options)

    def build_network(self, *, channels: int, classes: int, stem: str, weights: str | None) -> nn.Module:
        """The small network, whatever the stem; it starts at random."""
        if not self.small:
            return super().build_network(channels=channels, classes=classes, stem=stem, weights=weights)
        network: nn.Module = resolve_name(self.kind)(channels, classes)
        return network


class EnlargingClassifier(SmallClassifier):
    """One that enlarges its images four times, as for weights of a network that was trained on larger ones."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(functional.interpolate(images, scale_factor=4))


class ManyTensorsClassifier(SmallClassifier):
    """One whose optimizer has much to do for little: so many ``times`` a tensor."""

    times = 1500

    def build_network(self, *, channels: int, classes: int, **_: Any) -> nn.Module:
        """The small network with so many more tensors."""
        return ManyTensorsNetwork(channels, classes, self.times)


class WaitingClassifier(SmallClassifier):
    """One that waits in one ``place`` of each training step.

    In the ``step`` itself, as for a server or a lock; in a ``hook`` before the update, as one that logs norms of
    gradients; or in the ``update``, as for other machines' gradients.
    """

    def __init__(self, *, place: Literal["step", "hook", "update"] = "step", **options: Any) -> None:
        self.place = place
        super().__init__(**options)

    def training_step(self, *given: Any) -> Any:
        self._wait("step")
        return super().training_step(*given)

    def on_before_optimizer_step(self, *_: Any) -> None:
        self._wait("hook")

    def optimizer_step(self, *given: Any, **named: Any) -> None:
        super().optimizer_step(*given, **named)
        self._wait("update")

    def _wait(self, place: str) -> None:
        if place == self.place:
            time.sleep(self.seconds)


class LockedClassifier(SmallClassifier):
    """One whose step needs a lock that a thread of its own holds most of the time, for so many ``seconds`` each."""

    def on_train_start(self) -> None:
        """Start the thread, which ends with training."""
        self.lock, self.ended = threading.Lock(), threading.Event()
        threading.Thread(target=self._hold, daemon=True).start()

    def on_train_end(self) -> None:
        self.ended.set()

    def training_step(self, *given: Any) -> Any:
        with self.lock:
            return super().training_step(*given)

    def _hold(self) -> None:
        while not self.ended.wait(1e-3):
            with self.lock:
                time.sleep(self.seconds)


class MetricLoopClassifier(SmallClassifier):
    """One that counts its labels in Python, image by image, so many ``times``."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        labels, self.counts = batch[1].tolist(), getattr(self, "counts", dict[int, int]())
        for _ in range(self.times):
            for label in labels:
                self.counts[label] = self.counts.get(label, 0) + 1
        return super().training_step(batch, batch_idx)


class GradientNormsClassifier(SmallClassifier):
    """One that asks for the norm of each gradient before each update, so many ``times``."""

    def on_before_optimizer_step(self, *given: Any) -> None:
        for _ in range(self.times):
            self.norms = [weights.grad.norm().item() for weights in self.parameters() if weights.grad is not None]


class LazyPenaltyClassifier(SmallClassifier):
    """One that computes a penalty of its own in one step of 16, as some generative models do."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps % 16 == 0:
            compute(self.seconds)
        return super().training_step(batch, batch_idx)


class LeakingClassifier(SmallClassifier):
    """One that keeps something of each step, and goes through all of it in the next."""

    seconds = 2e-4

    def training_step(self, *given: Any) -> Any:
        self.kept = [*getattr(self, "kept", []), 0.0]
        compute(self.seconds * len(self.kept))
        return super().training_step(*given)
