"""The classes of the Lightning that is used: ``lightning`` and ``pytorch_lightning`` are two packages of one program.

Users have either or both. It is the one that is imported already, of both and of none ``lightning``; `Callback` is a
callback of each that is imported, which type checks such as LightningCLI's ask for.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import RichProgressBar
    from lightning.pytorch.loggers import TensorBoardLogger
    from lightning.pytorch.profilers import PassThroughProfiler, Profiler
else:
    _NAMES = ("lightning.pytorch", "pytorch_lightning")
    _names = [name for name in _NAMES if name in sys.modules] or [_NAMES[find_spec("lightning") is None]]
    _first, *_ = _all = [import_module(name) for name in _names]
    Callback = _first.Callback if len(_all) == 1 else type("Callback", tuple(one.Callback for one in _all), {})
    LightningModule, Trainer, RichProgressBar = _first.LightningModule, _first.Trainer, _first.callbacks.RichProgressBar
    TensorBoardLogger = _first.loggers.TensorBoardLogger
    PassThroughProfiler, Profiler = _first.profilers.PassThroughProfiler, _first.profilers.Profiler

__all__ = ["Callback", "LightningModule", "PassThroughProfiler", "Profiler", "RichProgressBar", "TensorBoardLogger"]
__all__ += ["Trainer"]
