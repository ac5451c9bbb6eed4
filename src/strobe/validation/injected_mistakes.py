"""Mistakes and habits as people report them in public, for the grid's ``unseen`` part.

Where a report is well known, the class names it. Each costs time in the way in which it does there; only sizes are
chosen such that a run of seconds shows it.
"""

import bz2
import io
import subprocess
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional

from strobe.app.loaders.base import Batch, LoadedData
from strobe.app.loaders.memory import ArrayData, GatheredData, MemoryLoader
from strobe.app.loaders.sources import ArraySource, TileSource
from strobe.app.loaders.tifffile import TifffileLoader, select_bands
from strobe.bench.small import SmallNetwork
from strobe.validation.injected_faults import SmallClassifier, StepCallback, WaitingClassifier
from strobe.validation.injected_python import BusyThread


class TextPhotos(MemoryLoader):
    """Photos as a table of text has them, a string of numbers for each: FER2013's form, and Kaggle's."""

    kept = 1024  # of a split

    def dataset(self, source: ArraySource) -> LoadedData:
        return TextData(self, ArraySource(source.images, source.targets, source.indices[: self.kept]))


class TextData(ArrayData):
    """A string is read when its photo is asked for."""

    def __init__(self, loader: MemoryLoader, source: ArraySource) -> None:
        super().__init__(loader, source)
        photos = source.images[source.indices].flatten(1).tolist()
        self.rows = [" ".join(map(str, photo)) for photo in photos]

    def __getitem__(self, index: int) -> Batch:
        numbers = np.array([int(number) for number in self.rows[index].split()], dtype=np.uint8)
        pixels = torch.from_numpy(numbers).view(self.source.images.shape[1:])
        return self.loader.scaled(pixels, self.source.full_scale), self.source.targets[self.source.indices[index]]


class ZippedTiles(TifffileLoader):
    """Opens an archive of all tiles for each of them, and so reads its whole index (pytorch/vision#950).

    The archive is written beside the class folders on first use.
    """

    def dataset(self, source: TileSource) -> LoadedData:
        first = Path(source.paths[0])
        self.archive = first.parents[1] / "tiles.zip"
        if not self.archive.exists():
            partial = self.archive.with_suffix(".partial")
            with zipfile.ZipFile(partial, "w") as archive:
                for path in map(Path, source.paths):
                    archive.write(path, f"{path.parent.name}/{path.name}")
            partial.rename(self.archive)
        return super().dataset(source)

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        with zipfile.ZipFile(self.archive) as archive:
            content = archive.read("/".join(Path(path).parts[-2:]))
        return select_bands(tifffile.imread(io.BytesIO(content), maxworkers=1), source)


class EnlargedTiles(TifffileLoader):
    """Doubles the sides of each tile, as a transform does that was written for larger photos."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        return super().read(path, source).repeat(2, axis=1).repeat(2, axis=2)


class ListedPhotos(MemoryLoader):
    """Makes a batch of a list of arrays, of which torch warns that it is slow (huggingface/transformers#19822)."""

    def dataset(self, source: ArraySource) -> LoadedData:
        return ListedData(self, source)


class ListedData(ArrayData):
    """Collates so."""

    @staticmethod
    def collate(items: Any) -> Batch:
        return torch.tensor([pixels.numpy() for pixels, _ in items]), torch.tensor([int(label) for _, label in items])


class ShardedPhotos(MemoryLoader):
    """Has photos in shards of floats, each unpacked when its predecessor is used up."""

    def dataset(self, source: ArraySource) -> LoadedData:
        return ShardedData(self, source, shard(source.images[0].numel()))


class ShardedData(GatheredData):
    """Unpacks the next shard when it is needed, and not before: for one batch in many."""

    def __init__(self, loader: MemoryLoader, source: ArraySource, packed: bytes) -> None:
        super().__init__(loader, source)
        self.packed, self.left = packed, 0

    def __getitems__(self, indices: Any) -> Batch:
        if self.left <= 0:
            self.left += len(bz2.decompress(self.packed)) // (4 * self.source.images[0].numel())
        self.left -= len(indices)
        return super().__getitems__(indices)


@cache
def shard(values: int, images: int = 1024) -> bytes:
    """So many images of so many floats, with as much noise as photos have, packed."""
    levels = np.random.default_rng(0).normal(128, 20, (images, values)).astype(np.uint8)
    return bz2.compress((levels / np.float32(255)).tobytes(), 1)


class SpectralNorms(StepCallback):
    """Asks for the largest singular value of each weight matrix."""

    def act(self, trainer: Any, pl_module: nn.Module, *_: Any) -> None:
        matrices = [weights.detach().flatten(1) for weights in pl_module.parameters() if weights.ndim > 1]
        self.norms = [float(torch.linalg.svdvals(matrix)[0]) for matrix in matrices]


class PlotThread(BusyThread):
    """Has a thread that draws the losses anew, so that somebody can watch them."""

    def _watch(self) -> None:
        losses = np.random.default_rng(0).normal(size=500).cumsum()
        while not self._over.wait(0.02):
            figure = Figure()
            figure.subplots().plot(losses)
            figure.savefig(io.BytesIO())


class MonitorThread(BusyThread):
    """Has a thread that asks for the load twice a second, as trackers of experiments do: it costs nothing."""

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self.load = Path("/proc/loadavg").read_text()


class StatisticsClassifier(SmallClassifier):
    """One that logs statistics of all weights and gradients in each step, as pages on debugging advise."""

    def on_before_optimizer_step(self, *_: Any) -> None:
        for name, weights in self.named_parameters():
            for what, values in (("weight", weights.detach()), ("gradient", weights.grad)):
                if values is not None:
                    self.log(f"norm/{what}/{name}", values.norm())
                    self.log(f"mean/{what}/{name}", values.mean())
                    self.log(f"largest/{what}/{name}", values.abs().max())
                    self.log(f"deviation/{what}/{name}", (values - values.mean()).square().mean().sqrt())


class ImageLossesClassifier(SmallClassifier):
    """One that logs the loss of each image by itself."""

    def _step(self, stage: str, batch: Batch) -> tuple[Tensor, Tensor]:
        loss, logits = super()._step(stage, batch)
        if stage == "train":
            for number, own in enumerate(functional.cross_entropy(logits.detach(), batch[1], reduction="none")):
                self.log(f"loss/{number}", own)
        return loss, logits


class HandWrittenAdam(torch.optim.Optimizer):
    """Adam as papers' code has it: tensor by tensor, each intermediate result in memory of its own."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is None:
                    continue
                state = self.state[weights]
                count = state["step"] = state.get("step", 0) + 1
                gradient = weights.grad + 1e-4 * weights
                mean = state["mean"] = 0.9 * state.get("mean", 0.0) + 0.1 * gradient
                square = state["square"] = 0.999 * state.get("square", 0.0) + 0.001 * gradient**2
                step = (mean / (1 - 0.9**count)) / ((square / (1 - 0.999**count)).sqrt() + 1e-8)
                weights.data = weights.data - group["lr"] * step
        return loss


class HandWrittenAdamClassifier(SmallClassifier):
    """One that is updated so."""

    def configure_optimizers(self) -> Any:
        return HandWrittenAdam(self.parameters(), lr=1e-4)


class ClusteringClassifier(SmallClassifier):
    """One that finds pseudo-labels by k-means at the end of each epoch."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.images = batch[0]

    def on_train_epoch_end(self) -> None:
        points = self.images.flatten(1).numpy()
        self.labels = kmeans2(points, points[:100], iter=100, minit="matrix")[1]


class ViewsClassifier(SmallClassifier):
    """One that validates on eight views of each image."""

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        for image in (batch[0], batch[0].flip(3)):
            for turns in range(4):
                super().validation_step((image.rot90(turns, (2, 3)), batch[1]), batch_idx)


class CellByCellNetwork(SmallNetwork):
    """A recurrent network that goes through its 64 places in Python, by ``nn.LSTMCell``."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.cell = nn.LSTMCell(32, 64)

    def forward(self, images: Tensor) -> Tensor:
        state = None
        for place in self.features(images).flatten(2).unbind(2):
            state = self.cell(place, state)
        assert state is not None
        logits: Tensor = self.head(state[0])
        return logits


class MatchingClassifier(SmallClassifier):
    """One that matches predictions and targets of each image by SciPy (facebookresearch/detr#562)."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        rows = batch[0].flatten(1, 2)  # 96 predictions of 32 numbers each; the next image's are its targets
        costs = torch.cdist(rows, rows.roll(1, 0)).numpy()
        self.matched = [linear_sum_assignment(cost)[1] for cost in costs]
        return super().training_step(batch, batch_idx)


class SimulatorClassifier(WaitingClassifier):
    """One that sends each step's action to a simulator, a program of its own, and waits for the reward."""

    def _wait(self, place: str) -> None:
        if place == "step":
            program = simulator(self.seconds)
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write("action\n")
            program.stdin.flush()
            self.reward = float(program.stdout.readline())


@cache
def simulator(seconds: float) -> "subprocess.Popen[str]":
    """The program, which answers each line after so long; it ends with this process."""
    answers = f"while read -r action; do sleep {seconds}; echo 1; done"
    return subprocess.Popen(["sh", "-c", answers], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class DoubleClassifier(SmallClassifier):
    """One whose weights were made double, so that an array of NumPy's fitted."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.double()


class OneThreadClassifier(SmallClassifier):
    """One that sets the number of threads to one, by a line that came with code for a cluster."""

    def setup(self, stage: str) -> None:
        torch.set_num_threads(1)


class BankClassifier(SmallClassifier):
    """One that compares its images with all that it has seen: a memory bank without an end."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        features = functional.normalize(functional.adaptive_avg_pool2d(batch[0], 4).flatten(1))
        self.bank = torch.cat([getattr(self, "bank", features[:0]), features])
        self.hardest = (features @ self.bank.T).max(1).values
        return super().training_step(batch, batch_idx)
