"""The LightningModule: a network that classifies images, its optimizer, schedule and metrics."""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix

from strobe.app.loaders.base import Batch
from strobe.app.model.resnet import build_resnet18
from strobe.errors import ConfigError
from strobe.measure.untouched import untouched

STAGES = ("train", "val", "test")
OPTIMIZERS: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


class ImageClassifier(LightningModule):
    """Cross-entropy over ``classes``; see ``ModelConfig`` for the other arguments. ``image_size``: height and width.

    Logs ``<stage>/loss`` and ``<stage>/accuracy`` per epoch for train, val and test, ``train/step_loss`` per step, and
    each class's accuracy in the test; :attr:`confusion_counts` then holds the counts.
    """

    def __init__(
        self,
        *,
        classes: Sequence[str],
        channels: int,
        batch_size: int,
        weights: str | None,
        channels_last: bool,
        compile: bool,
        label_smoothing: float,
        optimizer: str,
        lr: float,
        weight_decay: float,
        fused: bool | None,
        momentum: float,
        scheduler: str,
        lr_scaling: str,
        lr_batch_size: int,
        stem: str = "imagenet",
        image_size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.classes = tuple(classes)
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.network = self.build_network(channels=channels, classes=len(classes), stem=stem, weights=weights)
        self.network.to(memory_format=self.memory_format)
        if compile:
            self.network.compile()
        self.losses = nn.ModuleDict({f"{stage}_loss": Mean() for stage in STAGES})
        accuracy = partial(MulticlassAccuracy, len(classes), average="micro", validate_args=False)
        self.accuracies = nn.ModuleDict({f"{stage}_accuracy": accuracy() for stage in STAGES})
        self.confusion = MulticlassConfusionMatrix(len(classes), validate_args=False)

    def build_network(self, *, channels: int, classes: int, stem: str, weights: str | None) -> nn.Module:
        """The network: images (N, C, H, W) to logits (N, classes)."""
        network: nn.Module = build_resnet18(channels=channels, classes=classes, stem=stem, weights=weights)
        return network

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, classes) of standardised images (N, C, H, W)."""
        weight = next(self.network.parameters())
        logits: Tensor = self.network(images.to(weight.dtype, memory_format=self.memory_format))
        return logits

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of one batch."""
        loss = self._step("train", batch)[0]
        # The bar reads it in each step, which would wait for a GPU.
        self.log("train/step_loss", loss, prog_bar=self.device.type == "cpu")
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Count one batch."""
        self._step("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Count one batch, in the confusion matrix too."""
        _, logits = self._step("test", batch)
        self.confusion.update(logits, batch[1])

    def on_test_epoch_start(self) -> None:
        """Start the counts again."""
        self.confusion.reset()

    def on_test_epoch_end(self) -> None:
        """Keep the accuracy of each class that was tested, over all ranks; each would be a chart of one dot."""
        counts = self.confusion.compute()
        self.confusion_counts = counts.cpu()
        for name, right, tested in zip(self.classes, counts.diag(), counts.sum(1), strict=True):
            if tested:  # as on all other ranks
                self.log(f"test/accuracy/{name}", right / tested, sync_dist=True, logger=False)

    def configure_optimizers(self) -> Any:
        """The optimizer and its schedule, if any, which is stepped with each batch."""
        chosen, lr = self.hparams, self.scaled_lr()
        optimizer = build_optimizer(self.parameters(), chosen, lr=lr)
        if chosen["scheduler"] == "none":
            return optimizer
        steps = self.trainer.estimated_stepping_batches
        if steps == math.inf:
            raise ConfigError(
                "model.scheduler=one_cycle is planned over all steps, but training has no end; "
                "set trainer.max_epochs or trainer.max_steps, or model.scheduler=none"
            )
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=int(steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def scaled_lr(self) -> float:
        """The learning rate; it grows with the batch for ``lr_scaling=linear`` (Goyal 2017, arXiv:1706.02677)."""
        lr = float(self.hparams["lr"])
        if self.hparams["lr_scaling"] == "none":
            return lr
        images: int = self.hparams["batch_size"] * self.trainer.world_size * self.trainer.accumulate_grad_batches
        return lr * images / int(self.hparams["lr_batch_size"])

    @torch.inference_mode(mode=False)
    def dry_step(self, images: Tensor) -> None:
        """Train on images (N, C, H, W) as a step does, on copies of the network and the optimizer's state.

        The copy of the weights stands for the buckets in which several ranks exchange gradients.
        """
        network: Any = copy.deepcopy(self.network).train()
        labels = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        optimizer = build_optimizer(network.parameters(), self.hparams, lr=0.0)
        with untouched(), torch.enable_grad(), self.trainer.precision_plugin.forward_context():
            taken = images.to(next(network.parameters()).dtype, memory_format=self.memory_format, copy=True)
            F.cross_entropy(network(taken), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def _step(self, stage: str, batch: Batch) -> tuple[Tensor, Tensor]:
        images, labels = batch
        logits = self(images)
        smoothing = self.hparams["label_smoothing"] if stage == "train" else 0.0
        loss = F.cross_entropy(logits, labels, label_smoothing=smoothing)
        for name, metrics, values in (
            ("loss", self.losses, (loss.detach(), len(labels))),
            ("accuracy", self.accuracies, (logits.detach(), labels)),
        ):
            metric = cast(Metric, metrics[f"{stage}_{name}"])
            metric.update(*values)
            key = f"{stage}/{name}"
            bar, logged = key == "val/accuracy", False if stage == "test" else None  # a test's chart is one dot
            self.log(key, metric, on_step=False, on_epoch=True, prog_bar=bar, logger=logged)
        return loss, logits


def build_optimizer(parameters: Iterable[nn.Parameter], chosen: Mapping[str, Any], *, lr: float) -> Optimizer:
    """The optimizer that ``chosen`` names; it has the keys of ``ModelConfig``."""
    extra = {"momentum": chosen["momentum"]} if chosen["optimizer"] == "sgd" else {}
    made: Optimizer = OPTIMIZERS[chosen["optimizer"]](
        parameters, lr=lr, weight_decay=chosen["weight_decay"], fused=chosen["fused"], **extra
    )
    return made


class Mean(Metric):
    """The mean of batch means, weighted by the images in each, over all ranks.

    torchmetrics' MeanMetric looks for NaN in each update, which waits for the GPU, and leaves such values out; here a
    NaN shows in the mean.
    """

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, mean: Tensor, images: int) -> None:
        """Add a batch."""
        self.total += mean * images
        self.count += images

    def compute(self) -> Tensor:
        """The mean so far."""
        return self.total / self.count
