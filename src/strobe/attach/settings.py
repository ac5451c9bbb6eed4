"""What a training is set to, as far as its Trainer and loaders tell: only attributes are read, no loader is used."""

import gc
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, IterableDataset

from strobe.callbacks.accelerators import activities, in_use, is_accelerator, is_filled
from strobe.callbacks.loop import parameters_of
from strobe.callbacks.schedule import Schedule
from strobe.callbacks.tracer import Tracer, profilers
from strobe.diagnose.rules.debugging import PROFILERS
from strobe.measure.untouched import matmul_precision
from strobe.probe.changes import BLAS, EACH, FOREACH, FUSED, MADE, MALLOC, is_convolutional
from strobe.process.output import note

SCHEDULE = {"wait": 1, "warmup": 1, "active": 3, "repeat": 2}  # as the application's profiler=trace
SHORT = {"wait": 4, "warmup": 1, "active": 2, "repeat": 1}  # on a GPU, to tell its work from its waiting for the host

UNFUSED = (torch.optim.Adam, torch.optim.AdamW)  # whose fused update is far faster, on a CPU too
_LOADER = ("num_workers", "persistent_workers", "pin_memory", "prefetch_factor")
_TRAINER = (
    *("precision", "log_every_n_steps", "check_val_every_n_epoch", "val_check_interval", "max_epochs"),
    "reload_dataloaders_every_n_epochs",
)


@dataclass(frozen=True)
class Asked:
    """What a script asks to be recorded, and how."""

    loader: Any
    optimizers: Sequence[Any] | None  # of torch; None for all
    directory: Path | None
    schedule: dict[str, int] | None  # of a trace, see `schedule_of`
    report: bool
    unasked: bool = False  # the script does not ask, see `strobe.attach.unasked`
    probe: Any = None  # a ``LoopProbe``, in the process of a script that is probed


def schedule_of(trace: bool | Mapping[str, int] | None) -> dict[str, int] | None:
    """The schedule of a trace as it is asked for, empty for none, None where the device decides.

    Raises a ValueError for what is no schedule.
    """
    if trace is None:
        return None
    given = dict(trace) if isinstance(trace, Mapping) else {}
    if unknown := given.keys() - SCHEDULE.keys():
        raise ValueError(f"trace has no key {', '.join(sorted(unknown))}; give some of {', '.join(SCHEDULE)}")
    schedule = SCHEDULE | given
    Schedule(**schedule)  # raises for numbers that are out of range
    return schedule if trace is True or isinstance(trace, Mapping) else {}


def schedule_on(device: torch.device, asked: dict[str, int] | None) -> dict[str, int]:
    """The schedule as it was asked for, or else that of the device; empty for no trace."""
    return asked if asked is not None else SHORT if len(activities(device)) > 1 else {}


def settings_of(trainer: Any) -> dict[str, Any]:
    """Settings by the names that rules ask for: ``engine`` of the loader, ``trainer``, ``threads``."""
    progress = getattr(trainer, "progress_bar_callback", None)
    config = loading_of(getattr(trainer, "train_dataloader", None))
    config["validation"] = _validation(trainer)
    config["optimizer"] = updating(trainer.optimizers)
    config["trainer"] = {name: getattr(trainer, name, None) for name in _TRAINER}
    config["trainer"]["enable_progress_bar"] = bool(progress and getattr(progress, "is_enabled", True))
    config["trainer"]["detect_anomaly"] = torch.is_anomaly_enabled() or bool(getattr(trainer, "_detect_anomaly", False))
    own = getattr(trainer.profiler, "inner", trainer.profiler)  # the recorder's stands in for it
    config["trainer"]["profiler"] = PROFILERS.get(type(own).__name__)
    varies = any(type(one).__name__ == "GradientAccumulationScheduler" for one in trainer.callbacks)
    if trainer.lightning_module.automatic_optimization and not varies:
        config["trainer"]["accumulate_grad_batches"] = trainer.accumulate_grad_batches
    return config | _changeable(trainer, loaders_of(trainer.train_dataloader))


def _changeable(trainer: Any, loaders: Sequence[Any]) -> dict[str, Any]:
    """As :func:`changeable_of`, with whether the module is compiled.

    For one that convolves images also its memory layout and ``benchmark``: whether cuDNN tries its algorithms.
    """
    if not hasattr(trainer, MADE):
        return {}
    settings = changeable_of({"loader": loaders, "trainer": [trainer], "optimizer": trainer.optimizers})
    module = trainer.lightning_module
    if is_convolutional(module):
        convolutions = [part.weight for part in module.modules() if isinstance(part, torch.nn.Conv2d)]
        if not torch.are_deterministic_algorithms_enabled():
            settings["benchmark"] = torch.backends.cudnn.benchmark
        settings["model"]["channels_last"] = any(not weight.is_contiguous() for weight in convolutions)
    settings["model"]["compile"] = getattr(module, "_compiler_ctx", None) is not None or any(
        hasattr(part, "_orig_mod") or getattr(part, "_compiled_call_impl", None) for part in module.modules()
    )
    return settings


def changeable_of(parts: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The settings of a training, by its loaders and optimizers.

    Returns:
        ``data.batch_size``, where the script gave its only loader one; ``model``, how its optimizers update;
        ``matmul_precision``; ``environment``, the variables that can be changed; ``made``, where the script made each
        part. {} without :func:`strobe.probe.changes.install`.
    """
    made = {kind: [vars(one)[MADE] for one in several if MADE in vars(one)] for kind, several in parts.items()}
    if not any(made.values()):
        return {}
    loaders, optimizers = parts["loader"], parts["optimizer"]
    settings: dict[str, Any] = {"matmul_precision": matmul_precision(), "model": {}, "made": made}
    settings["environment"] = {name: os.environ.get(name) for name in (BLAS, *MALLOC)}
    if len(loaders) == 1 and "batch_size" in getattr(loaders[0], MADE, {"given": ()})["given"]:
        settings["data"] = {"batch_size": loaders[0].batch_size}
    if optimizers and all(type(one).__name__ in FUSED for one in optimizers):
        settings["model"]["fused"] = all(one.defaults.get("fused") is True for one in optimizers)
    if optimizers and all(type(one).__name__ in EACH for one in optimizers):
        settings["model"][FOREACH] = all(one.defaults.get(FOREACH) is True for one in optimizers)
    return settings


def _validation(trainer: Any) -> dict[str, Any]:
    """How many loader workers start anew with each validation, and the size of its smallest batches."""
    loaders = loaders_of(getattr(trainer, "val_dataloaders", None))
    restarted = sum(one.num_workers for one in loaders if not getattr(one, "persistent_workers", True))
    sizes = [size for one in loaders if isinstance(size := getattr(one, "batch_size", None), int)]
    return {"restarted_workers": restarted, "batch_size": min(sizes, default=None)}


def updating(optimizers: Sequence[Any]) -> dict[str, Any]:
    """``unfused``: the class of optimizers that have a fused update and do not use it; None where one has none.

    ``searches``: whether one computes the loss many times for an update.
    """
    names = {type(one).__name__ if type(one) in UNFUSED else None for one in optimizers}
    fused = any(group.get("fused") for one in optimizers for group in one.param_groups)
    searches = any(isinstance(one, torch.optim.LBFGS) for one in optimizers)
    return {"unfused": names.pop() if len(names) == 1 and not fused else None, "searches": searches}


def loading_of(loader: Any) -> dict[str, Any]:
    """``threads``, and ``engine`` of a DataLoader, or of a collection that holds one, or several without workers."""
    loaders, config = loaders_of(loader), dict[str, Any](threads=torch.get_num_threads())
    if len(loaders) == 1 or (loaders and not any(one.num_workers for one in loaders)):
        config["engine"] = {name: getattr(loaders[0], name, None) for name in _LOADER}
        context = getattr(loaders[0], "multiprocessing_context", None)
        config["engine"]["multiprocessing_context"] = context and context.get_start_method()
        config["engine"]["iterable"] = any(
            isinstance(getattr(one, "dataset", None), IterableDataset) for one in loaders
        )
    return config


def what_is_trained(trainer: Any) -> dict[str, Any]:
    """The keys of ``summary.json`` that name the model and its data."""
    names = what_is_loaded(getattr(trainer, "train_dataloader", None))
    if trainer.datamodule is not None:
        names["data"] = type(trainer.datamodule).__name__
    return names | {"choices": {"model": type(trainer.lightning_module).__name__}}


def what_is_loaded(loader: Any) -> dict[str, Any]:
    """Those that name the data of a loader, or of a collection of them."""
    loaders = loaders_of(loader)
    datasets = [type(one.dataset).__name__ for one in loaders if getattr(one, "dataset", None) is not None]
    sizes = [one.batch_size for one in tree_leaves(loader) if isinstance(getattr(one, "batch_size", None), int)]
    return {
        "data": " and ".join(dict.fromkeys(datasets)) or None,
        "batch_size": sizes[0] if len(sizes) == len(loaders) == 1 else None,
        "num_workers": sum(one.num_workers for one in loaders) if loaders else None,
    }


def device_of(optimizers: Iterable[Any] | None) -> torch.device:
    """The device that is trained on, by the parameters, or else by whether a GPU is in use.

    None: of all optimizers that there are. Where theirs lie on the CPU, but others on the GPU, they were offloaded.
    """
    used, cpu = in_use(), torch.device("cpu")
    known = _living_optimizers() if optimizers is None and used else optimizers or ()
    firsts = [parameters_of(optimizer)[:1] for optimizer in known]
    places = [torch.device(parameter.device) for several in firsts for parameter in several]
    if optimizers is not None and places:
        return places[0]
    if used is None or not places or used in places:
        return used or cpu
    return next(filter(is_accelerator, places), used if is_filled(used) else cpu)


def _living_optimizers() -> list[Any]:
    kinds: list[type[torch.optim.Optimizer]] = [torch.optim.Optimizer]
    for kind in kinds:
        kinds += [one for one in kind.__subclasses__() if one not in kinds]
    return [one for one in gc.get_referrers(*kinds) if issubclass(type(one), torch.optim.Optimizer)]


def keeps_its_profiler(trainers: Any = None) -> bool:
    """Whether the script uses torch.profiler itself, of which a process can run one; says that it keeps it.

    It may have one that begins to record later on, or Lightning's, which is the trainer's profiler.
    """
    profiler = getattr(trainers, "inner", trainers)  # the recorder's stands in for it
    keeps = any(one.__name__ == "PyTorchProfiler" for one in type(profiler).__mro__)
    keeps = keeps or any(not isinstance(getattr(one.schedule, "__self__", None), Tracer) for one in profilers())
    if keeps:
        note("Strobe records no trace: the script uses torch.profiler itself.")
    return keeps


def loaders_of(loader: Any) -> list[Any]:
    """The DataLoaders among one loader or a collection of them, also of a wrapper of one; others tell nothing."""
    return [one for leaf in tree_leaves(loader) if (one := _own(leaf)) is not None]


def _own(loader: Any) -> Any:
    """The loader if it tells its workers; or the DataLoader that it holds, as webdataset's and timm's do."""
    if isinstance(getattr(loader, "num_workers", None), int):
        return loader
    held = [*getattr(loader, "__dict__", {}).values()]
    held += [one for several in held if isinstance(several, list | tuple) for one in several]
    return next((one for one in held if isinstance(one, DataLoader)), None)


def reference(thing: Any) -> Callable[[], Any]:
    """The thing, kept no longer than the script keeps it where that is possible."""
    try:
        return weakref.ref(thing)
    except TypeError:  # a list
        return lambda: thing
