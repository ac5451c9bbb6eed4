"""What a training is set to, as far as its Trainer and loaders tell: only attributes are read, no loader is used."""

import gc
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import IterableDataset

from strobe.callbacks.tracer import Tracer

_LOADER = ("num_workers", "persistent_workers", "pin_memory", "prefetch_factor")
_TRAINER = (
    *("precision", "log_every_n_steps", "check_val_every_n_epoch", "val_check_interval", "max_epochs"),
    "reload_dataloaders_every_n_epochs",
)


def settings_of(trainer: Any) -> dict[str, Any]:
    """Settings by the names that rules ask for: ``engine`` of the loader, ``trainer``, ``threads``."""
    loaders, progress = _loaders(trainer), getattr(trainer, "progress_bar_callback", None)
    found: dict[str, Any] = {
        "trainer": {name: getattr(trainer, name, None) for name in _TRAINER},
        "threads": torch.get_num_threads(),
    }
    found["trainer"]["enable_progress_bar"] = bool(progress and getattr(progress, "is_enabled", True))
    varies = any(type(one).__name__ == "GradientAccumulationScheduler" for one in trainer.callbacks)
    if trainer.lightning_module.automatic_optimization and not varies:
        found["trainer"]["accumulate_grad_batches"] = trainer.accumulate_grad_batches
    if len(loaders) == 1:
        found["engine"] = {name: getattr(loaders[0], name, None) for name in _LOADER}
        found["engine"]["iterable"] = isinstance(getattr(loaders[0], "dataset", None), IterableDataset)
    return found


def what_is_trained(trainer: Any) -> dict[str, Any]:
    """The keys of ``summary.json`` that name the model and its data."""
    loaders, data = _loaders(trainer), trainer.datamodule
    datasets = [getattr(one, "dataset", None) for one in loaders]
    if data is None and datasets:
        data = datasets[0]
    sizes = [one.batch_size for one in loaders if isinstance(getattr(one, "batch_size", None), int)]
    return {
        "data": None if data is None else type(data).__name__,
        "choices": {"model": type(trainer.lightning_module).__name__},
        "batch_size": sizes[0] if len(sizes) == len(loaders) == 1 else None,
        "num_workers": sum(one.num_workers for one in loaders) if loaders else None,
    }


def profiles_itself(trainer: Any) -> bool:
    """Whether the script has a torch.profiler, which may begin to record later on, or Lightning's profiler of it."""
    own = getattr(trainer.profiler, "inner", trainer.profiler)  # the recorder's stands in for it
    if any(one.__name__ == "PyTorchProfiler" for one in type(own).__mro__):
        return True
    # Asked for by its type: a lazy object may import what it stands for.
    found = [one for one in gc.get_objects() if issubclass(type(one), torch.profiler.profile)]
    return any(not isinstance(getattr(one.schedule, "__self__", None), Tracer) for one in found)


def _loaders(trainer: Any) -> list[Any]:
    """The DataLoaders of training, of one or a collection of them; others tell nothing."""
    found = tree_leaves(getattr(trainer, "train_dataloader", None))
    return [one for one in found if isinstance(getattr(one, "num_workers", None), int)]
