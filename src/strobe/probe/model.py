"""The model's ceiling: Lightning's own loop over one batch that lies on the device already."""

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from lightning import LightningDataModule, LightningModule, Trainer
from lightning.fabric.utilities.apply_func import move_data_to_device
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.data import extract_batch_size
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn

from strobe.measure.timing import Meter, Rate, clock
from strobe.measure.untouched import let_go
from strobe.process.signals import lightnings_interrupt

WARMUP = 3  # steps, which pay for allocation, autotuning and compiling
ENDLESS = 1_000_000_000  # steps; a learning-rate schedule needs a number
ALONE: dict[str, Any] = {  # arguments of a Trainer in which nobody looks on, writes or validates
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


class Stepping(Callback):
    """Tells ``add`` the images of each step that has ended, and ends training when that says it was the last."""

    def __init__(self, add: Callable[[int], bool]) -> None:
        self._add = add

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a step."""
        if self._add(extract_batch_size(batch)):
            trainer.should_stop = True


def measure_model(
    make_model: Callable[[], LightningModule],
    make_trainer: Callable[[], Trainer],
    batch: Any,
    *,
    data: LightningDataModule,
    seconds: float,
) -> Rate:
    """Train a new model on the same batch again and again.

    A step is the training's own: Lightning's loop, the data's hooks on the device, forward, backward and update, in
    the trainer's precision, with a clipped gradient where it has one. Fetching the batch is not counted.

    Args:
        make_model: makes the model, which is not held when this returns.
        make_trainer: makes a trainer with the arguments ``ALONE`` among its own.
        batch: as the loader gives it; left as it is.
        data: whose hooks make a batch ready, such as ``on_after_batch_transfer``; left as it is.
        seconds: at most, from the end of the first step on.

    Raises:
        KeyboardInterrupt: after Ctrl-C, which Lightning would turn into ``SystemExit``.
    """
    trainer = make_trainer()
    device = trainer.strategy.root_device
    meter = Meter(seconds, multiple=trainer.accumulate_grad_batches, warmup=WARMUP, clock=clock(device))
    trainer.callbacks.append(Stepping(meter.add))  # type: ignore[attr-defined]
    try:
        with lightnings_interrupt():
            trainer.fit(make_model(), datamodule=_Replay(data, batch, meter))
    except BaseException as error:
        let_go(error)
        raise
    finally:
        del trainer
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return meter.rate()


def note_input(model: nn.Module, note: Callable[[tuple[int, ...]], None]) -> None:
    """Tell ``note`` once the height and width on which the first convolution computes; never where there is none."""

    def told(_: nn.Module, given: tuple[Any, ...]) -> None:
        for handle in handles:
            handle.remove()
        note(tuple(given[0].shape[-2:]))

    handles = [each.register_forward_pre_hook(told) for each in model.modules() if isinstance(each, nn.Conv2d)]


class _Replay(LightningDataModule):
    """One batch again and again, made ready on the device by the hooks of ``data``."""

    def __init__(self, data: LightningDataModule, batch: Any, meter: Meter) -> None:
        super().__init__()
        self.data = copy.copy(data)  # it will have another trainer
        self.batch = batch
        self.meter = meter

    def train_dataloader(self) -> "_Again":
        assert self.trainer is not None
        self.data.trainer = self.trainer
        return _Again(move_data_to_device(self.batch, self.trainer.strategy.root_device), self.meter)

    def val_dataloader(self) -> list[Any]:
        return []

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return self.data.on_before_batch_transfer(batch, dataloader_idx)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return self.data.transfer_batch_to_device(batch, device, dataloader_idx)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return self.data.on_after_batch_transfer(batch, dataloader_idx)


class _Again:
    """Endlessly the same batch; of floats, which hooks may change in place, copies."""

    def __init__(self, batch: Any, meter: Meter) -> None:
        self.batch = batch
        self.meter = meter

    def __iter__(self) -> Iterator[Any]:
        while True:
            began = time.perf_counter()
            fresh = apply_to_collection(self.batch, Tensor, _fresh)
            self.meter.exclude(time.perf_counter() - began)
            yield fresh


def _fresh(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.is_floating_point() else tensor
