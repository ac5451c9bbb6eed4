"""The model's ceiling: Lightning's own loop over one batch that lies on the device already."""

import copy
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from strobe.app.build.instantiate import build_model
from strobe.app.build.trainer import build_trainer
from strobe.app.data.base import ImageData
from strobe.app.loaders.base import Batch
from strobe.measure.timing import Meter, Rate, clock
from strobe.measure.untouched import let_go

WARMUP = 3  # steps, which pay for allocation, autotuning and compiling
ENDLESS = 1_000_000_000  # steps; a learning-rate schedule needs a number
ALONE: dict[str, Any] = {
    "logger": False,
    "profiler": None,
    "fast_dev_run": False,
    "overfit_batches": 0.0,
    "max_epochs": -1,
    "min_epochs": None,
    "max_steps": ENDLESS,
    "min_steps": None,
    "max_time": None,
    "limit_train_batches": None,
    "limit_val_batches": 0,
    "val_check_interval": 1.0,
    "check_val_every_n_epoch": 1,
    "num_sanity_val_steps": 0,
    "reload_dataloaders_every_n_epochs": 0,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
}


def lone_trainer(cfg: DictConfig) -> Trainer:
    """The run's Trainer, less all that looks on, writes or validates."""
    arguments: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    for key in ("barebones", "callbacks"):
        arguments.pop(key, None)
    return build_trainer(arguments | ALONE)


def measure_model(cfg: DictConfig, data: ImageData, batch: Batch, *, seconds: float) -> Rate:
    """Train a new model of this configuration on the same batch again and again.

    A step is the run's own: Lightning's loop, normalising, augmenting, forward, backward and update, in the run's
    precision, with a clipped gradient where it has one. Fetching the batch is not counted.

    Args:
        cfg: of the run.
        data: set up; left as it is.
        batch: as the loader gives it; left as it is.
        seconds: at most, from the end of the first step on.

    Raises:
        KeyboardInterrupt: after Ctrl-C, which Lightning would turn into ``SystemExit``.
    """
    if cfg.model.compile:
        torch.compiler.reset()  # or another batch size would be compiled as one that varies
    trainer = lone_trainer(cfg)
    device = trainer.strategy.root_device
    meter = Meter(seconds, multiple=trainer.accumulate_grad_batches, warmup=WARMUP, clock=clock(device))
    trainer.callbacks.append(CountSteps(meter))  # type: ignore[attr-defined]
    settings = cfg.copy()
    settings.model.weights = None  # what they are makes no difference
    try:
        with _own_interrupt():
            trainer.fit(build_model(settings, data), datamodule=_Replay(data, batch, meter))
    except BaseException as error:
        let_go(error)
        if isinstance(error, SystemExit) and isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    finally:
        del trainer
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return meter.rate()


class CountSteps(Callback):
    """Counts steps, and ends training when they are enough."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Count a step."""
        if self.meter.add(len(batch[1])):
            trainer.should_stop = True


class _Replay(LightningDataModule):
    """One batch again and again, made ready on the device by the hooks of ``data``."""

    def __init__(self, data: ImageData, batch: Batch, meter: Meter) -> None:
        super().__init__()
        self.data = copy.copy(data)  # it will have another trainer
        self.batch = batch
        self.meter = meter

    def train_dataloader(self) -> "_Again":
        self.data.trainer = self.trainer
        assert self.trainer is not None
        pixels, labels = (tensor.to(self.trainer.strategy.root_device) for tensor in self.batch)
        return _Again((pixels, labels), self.meter)

    def val_dataloader(self) -> list[Any]:
        return []

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Any:
        return self.data.on_before_batch_transfer(batch, dataloader_idx)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Any:
        return self.data.transfer_batch_to_device(batch, device, dataloader_idx)

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Any:
        return self.data.on_after_batch_transfer(batch, dataloader_idx)


class _Again:
    """Endlessly the same batch; pixels that are floats, which are normalised in place, as copies."""

    def __init__(self, batch: Batch, meter: Meter) -> None:
        self.batch = batch
        self.meter = meter

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        pixels, labels = self.batch
        while True:
            if not pixels.is_floating_point():
                yield pixels, labels
                continue
            began = time.perf_counter()
            fresh = pixels.clone()
            self.meter.exclude(time.perf_counter() - began)
            yield fresh, labels


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Put back what Ctrl-C does: Lightning ignores it for good once it came."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
