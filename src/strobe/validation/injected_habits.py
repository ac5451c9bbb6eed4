"""Habits that cost time in strangers' trainings, for the grid's ``fresh`` part: each is code as people write it."""

import gc
import json
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics.classification import MulticlassAUROC
from torchvision.utils import save_image

from strobe.app.engines.sampler import EpochSampler, ShardedBatches
from strobe.app.engines.torch import LazyLoader, TorchEngine
from strobe.app.loaders.base import Batch, LoadedData
from strobe.app.loaders.sources import TileSource
from strobe.app.loaders.tifffile import TifffileLoader, select_bands
from strobe.validation.injected_faults import SmallClassifier, SmallPhotos, StepCallback, WaitingClassifier
from strobe.validation.injected_python import BusyThread


class WeightAverages(StepCallback):
    """Keeps three moving averages of all weights."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.kept = dict[str, Tensor]()

    def act(self, trainer: Any, pl_module: nn.Module, *_: Any) -> None:
        for decay in (0.9, 0.99, 0.999):
            for name, weights in pl_module.named_parameters():
                key, value = f"{decay} {name}", weights.detach()
                self.kept[key] = decay * self.kept.get(key, value) + (1 - decay) * value


class ImageGrids(StepCallback):
    """Writes the batch as one picture."""

    def act(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        save_image(batch[0], Path(trainer.default_root_dir, "grid.png"), nrow=32, normalize=True)


class Collecting(StepCallback):
    """Collects garbage, lest memory run out."""

    def act(self, *_: Any) -> None:
        gc.collect()


class WeightFiles(Callback):
    """Saves the weights twice at the end of each epoch, without Lightning's checkpoints."""

    def on_train_epoch_end(self, trainer: Any, pl_module: nn.Module) -> None:
        for name in ("last.pt", "best.pt"):
            torch.save(pl_module.state_dict(), Path(trainer.default_root_dir, name))


class HistoryThread(BusyThread):
    """Has a thread that makes JSON of the history so far, again and again."""

    def _watch(self) -> None:
        history = [{"step": step, "loss": step / 7} for step in range(2000)]
        while not self._over.wait(0.004):
            json.dumps(history)


class PlottingLogger(CSVLogger):
    """Draws the latest losses anew whenever one is logged."""

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        super().log_metrics(metrics, step)
        if "train/step_loss" in metrics:
            self.losses = [*getattr(self, "losses", [])[-200:], float(metrics["train/step_loss"])]
            figure = Figure()
            for axes in figure.subplots(2):
                axes.plot(self.losses)
            figure.savefig(Path(self.log_dir, "losses.png"))


class NpzTiles(TifffileLoader):
    """Reads compressed .npz files, which are made beside the tiles on first use."""

    def dataset(self, source: TileSource) -> LoadedData:
        for file in map(Path, source.paths):
            if not file.with_suffix(".npz").exists():
                np.savez_compressed(file.with_suffix(".npz"), tile=tifffile.imread(file))
        return super().dataset(source)

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        with np.load(Path(path).with_suffix(".npz")) as content:
            return select_bands(content["tile"], source)


class LargePhotos(SmallPhotos):
    """Photos as a camera has them, of which training takes little squares."""

    side, each = 2000, 48


class WeightedOrder(EpochSampler):
    """Draws rare classes more often; each epoch begins with counting them anew for each image."""

    labels: Tensor  # (N,) int64

    def order(self) -> NDArray[np.int64]:
        weights = np.array([1 / int((self.labels == label).sum()) for label in self.labels])
        random = np.random.default_rng([self.seed, self.epoch])
        return random.choice(self.size, self.size, p=weights / weights.sum())


class WeightedEngine(TorchEngine):
    """Batches in such an order."""

    def loader(self, dataset: LoadedData, batches: ShardedBatches, *, seed: int, device: torch.device) -> LazyLoader:
        """As torch's, but for the order of what is shuffled."""
        if batches.sampler.shuffle:
            batches.sampler.__class__ = WeightedOrder
            batches.sampler.labels = dataset.source.labels  # type: ignore[attr-defined]
        return super().loader(dataset, batches, seed=seed, device=device)


class HandClippedClassifier(SmallClassifier):
    """One that looks for NaN in each gradient, and clips each unit's by the norm of its weights."""

    def on_after_backward(self) -> None:
        for weights in self.parameters():
            if weights.grad is None or torch.isnan(weights.grad).any() or torch.isnan(weights).any():
                continue
            own, gradient = (value.detach().view(len(weights), -1) for value in (weights, weights.grad))
            most = 0.01 * own.norm(dim=1, keepdim=True).clamp(min=1e-3)
            norm = gradient.norm(dim=1, keepdim=True).clamp(min=1e-6)
            gradient.copy_(torch.where(norm > most, gradient * (most / norm), gradient))


class ScoringClassifier(SmallClassifier):
    """One that updates a metric of torchmetrics with each image of a batch by itself."""

    thresholds: int | None = 10

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.scores = MulticlassAUROC(len(self.classes), thresholds=self.thresholds)

    def _step(self, stage: str, batch: Batch) -> tuple[Tensor, Tensor]:
        loss, logits = super()._step(stage, batch)
        if stage == "train":
            self._score(logits.detach(), batch[1])
        return loss, logits

    def _score(self, logits: Tensor, labels: Tensor) -> None:
        for one in range(len(labels)):
            self.scores.update(logits[one : one + 1], labels[one : one + 1])


class ScoringSoFarClassifier(ScoringClassifier):
    """One that asks in each step for the result of all steps so far."""

    thresholds = None

    def _score(self, logits: Tensor, labels: Tensor) -> None:
        self.scores.update(logits, labels)
        self.scores.compute()


class SimilarityClassifier(ScoringClassifier):
    """One that compares all images of a batch, pair by pair."""

    def _score(self, logits: Tensor, labels: Tensor) -> None:
        self.similarity = [functional.cosine_similarity(*pair, dim=0) for pair in combinations(logits, 2)]


class BootstrapClassifier(SmallClassifier):
    """One that bootstraps an interval of its accuracy after each validation."""

    def on_validation_epoch_end(self) -> None:
        right, random = np.arange(1024) < 300, np.random.default_rng(0)
        self.interval = np.quantile([random.choice(right, len(right)).mean() for _ in range(50_000)], (0.025, 0.975))


class PollingClassifier(WaitingClassifier):
    """One that asks a program in each step, as for how busy a device is, and waits for its answer."""

    def _wait(self, place: str) -> None:
        if place == "step":
            subprocess.run(["sleep", str(self.seconds)], check=True)


class Orthogonal(torch.optim.SGD):
    """Makes each update nearly orthogonal by the iteration of Newton and Schulz, as Muon does."""

    def step(self, closure: Any = None) -> Any:
        loss = closure() if closure else None
        for weights in self.param_groups[0]["params"]:
            if weights.ndim > 1 and weights.grad is not None:
                update = weights.grad.flatten(1) / weights.grad.norm().clamp(min=1e-12)
                for _ in range(2):
                    square = update @ update.T
                    update = 3.4445 * update + (-4.775 * square + 2.0315 * square @ square) @ update
                weights.grad.copy_(update.view_as(weights))
        super().step()
        return loss


class OrthogonalClassifier(SmallClassifier):
    """One that is updated so."""

    def configure_optimizers(self) -> Any:
        return Orthogonal(self.parameters(), lr=0.01)
