"""The classes of the Lightning in use: ``lightning`` and ``pytorch_lightning`` are two packages of one program.

Users have either or both. The one that is already imported is used; if both or neither are, ``lightning``; `Callback`
is a callback of each that is imported, now or before `join_latest`, which type checks such as LightningCLI's ask for.
"""

import math
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

NAMES = ("lightning.pytorch", "pytorch_lightning")

if TYPE_CHECKING:
    from lightning.fabric.utilities.apply_func import move_data_to_device
    from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
    from lightning.pytorch.callbacks import RichProgressBar
    from lightning.pytorch.loggers import TensorBoardLogger
    from lightning.pytorch.profilers import PassThroughProfiler, Profiler
else:
    _names = [name for name in NAMES if name in sys.modules] or [NAMES[find_spec("lightning") is None]]
    _first, *_ = _all = [import_module(name) for name in _names]
    Callback = type("Callback", tuple(one.Callback for one in _all), {})
    LightningModule, Trainer, RichProgressBar = _first.LightningModule, _first.Trainer, _first.callbacks.RichProgressBar
    LightningDataModule, move_data_to_device = _first.LightningDataModule, _first.core.hooks.move_data_to_device
    TensorBoardLogger = _first.loggers.TensorBoardLogger
    PassThroughProfiler, Profiler = _first.profilers.PassThroughProfiler, _first.profilers.Profiler

__all__ = ["Callback", "LightningDataModule", "LightningModule", "PassThroughProfiler", "Profiler", "RichProgressBar"]
__all__ += ["TensorBoardLogger", "Trainer", "join_latest", "move_data_to_device", "seconds_left", "steps_left"]


def join_latest() -> None:
    """Let `Callback`, and what derives from it, be one of a Lightning, too, that a script imports after Strobe."""
    theirs = (getattr(sys.modules.get(name), "Callback", None) for name in NAMES)
    Callback.__bases__ = tuple(dict.fromkeys([*Callback.__bases__, *filter(None, theirs)]))


def steps_left(trainer: Any) -> float:
    """How many more batches this `fit` will train on; infinite if only time or a callback ends it."""
    epochs = math.inf if trainer.max_epochs in (None, -1) else trainer.max_epochs - trainer.current_epoch
    updates = math.inf if trainer.max_steps == -1 else trainer.max_steps - trainer.global_step
    done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
    return float(min(epochs * trainer.num_training_batches - done, updates * trainer.accumulate_grad_batches))


def seconds_left(trainer: Any) -> float:
    """Until a time limit (`max_time`, or Lightning's `Timer`) ends this `fit`; infinite without one."""
    left = [callback.time_remaining() for callback in trainer.callbacks if hasattr(callback, "time_remaining")]
    return min((seconds for seconds in left if seconds is not None), default=math.inf)
