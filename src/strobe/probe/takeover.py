"""Takes over a Lightning training in its script's process: it writes, logs and validates no more, and has no end.

Imports nothing of Strobe, torch or Lightning, so that a driver can load it by its path in another environment. Three
calls make a takeover: :func:`on_fit` before training, in whose ``begin`` the host calls :func:`silence` and adds a
callback of its own; that calls :func:`take_over` in ``on_fit_start``, and :func:`go_on` in ``on_train_batch_end``.
"""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
ENDLESS = 10**18  # updates before a request to stop counts
TUNERS = ("LearningRateFinder", "BatchSizeFinder")  # which train a little themselves, and save and load weights
OFF = (  # Lightning's callbacks that write, log, print or end training, and the user's kinds of them
    *("Checkpoint", "SaveConfigCallback", "BasePredictionWriter"),
    *("LearningRateMonitor", "DeviceStatsMonitor", "ThroughputMonitor", "ProgressBar", "ModelSummary"),
    *("EarlyStopping", "Timer", "SpikeDetection", "StochasticWeightAveraging"),
    *TUNERS,
)


def on_fit(trainer_class: Any, begin: Callable[[Any], None], ended: Callable[[Any], None]) -> None:
    """Call ``begin(trainer)`` before each ``fit`` of such a trainer, and ``ended(trainer)`` where one returned.

    Not where a tuner (``Tuner.lr_find``) trains before training. Lightning opens the loggers' files before any hook of
    a callback, so this can be no callback's work: it replaces ``fit`` of the class, in this process.
    """
    fit = trainer_class.fit

    @functools.wraps(fit)
    def taken(trainer: Any, *given: Any, **named: Any) -> Any:
        if any(is_lightnings(one, TUNERS) and getattr(one, "_early_exit", False) for one in trainer.callbacks):
            return fit(trainer, *given, **named)
        begin(trainer)
        fit(trainer, *given, **named)
        return ended(trainer)

    trainer_class.fit = taken


def silence(trainer: Any, scratch: str) -> None:
    """Before ``fit`` begins: no loggers, checkpoints, early stopping, progress bar, profiler or validation.

    Args:
        scratch: a folder for what code of the script writes into the logger's folder or the trainer's.
    """
    package = _package(trainer)
    places = dict.fromkeys(("save_dir", "log_dir", "root_dir"), scratch)
    # It takes any call, as in Lightning's own fast_dev_run.
    silent: Any = type("Silent", (import_module(f"{package}.loggers.logger").DummyLogger,), places)
    trainer.loggers = [silent() for _ in trainer.loggers]
    trainer.profiler = import_module(f"{package}.profilers").PassThroughProfiler()
    trainer.callbacks = [one for one in trainer.callbacks if not is_lightnings(one, OFF)]
    trainer.limit_val_batches = trainer.num_sanity_val_steps = 0
    trainer._default_root_dir = scratch


def take_over(trainer: Any, scratch: str) -> None:
    """In ``on_fit_start``: what :func:`silence` does, for callbacks of the module's too; nothing asks to stop."""
    silence(trainer, scratch)
    trainer.fit_loop.epoch_loop.min_steps = ENDLESS  # before which Lightning ignores trainer.should_stop
    for config in trainer.lr_scheduler_configs:
        config.strict = False  # it may watch a metric of the validation
        if hasattr(config.scheduler, "total_steps"):  # and raises after these
            config.scheduler.step = _while_it_lasts(config.scheduler)


def go_on(trainer: Any) -> None:
    """In ``on_train_batch_end``: where training would end, let it be as long again.

    Until then the script sees its own limits; its schedules were made with them.
    """
    loop = trainer.fit_loop
    if loop.max_epochs != -1 and trainer.current_epoch + 1 >= loop.max_epochs:
        loop.max_epochs = 2 * (trainer.current_epoch + 1)
    if loop.max_steps != -1 and trainer.global_step >= loop.max_steps:
        loop.epoch_loop.max_steps = 2 * trainer.global_step


def is_lightnings(callback: Any, names: tuple[str, ...]) -> bool:
    """Whether it is of a class of one of Lightning's with such a name, or of one derived from it."""
    roots = ("lightning.", "pytorch_lightning.")
    return any(kind.__name__ in names and kind.__module__.startswith(roots) for kind in type(callback).__mro__)


def _package(trainer: Any) -> str:
    """The Lightning of a trainer, which may be of a class derived from Lightning's."""
    modules = [kind.__module__ for kind in type(trainer).__mro__]
    return next(package for package in PACKAGES if f"{package}.trainer.trainer" in modules)


def _while_it_lasts(scheduler: Any) -> Callable[..., None]:
    step = scheduler.step

    def limited(*given: Any, **named: Any) -> None:
        if scheduler.last_epoch < scheduler.total_steps - 1:
            step(*given, **named)

    return limited
