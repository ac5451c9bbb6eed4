"""Takes over a Lightning training in its script's process: it writes, logs and validates no more, and has no end.

Imports nothing of Strobe, torch or Lightning, so that a driver can load it by its path in another environment. Four
calls make a takeover: :func:`without_loggers` and :func:`on_fit` before a Trainer has its loggers; in the latter's
``begin`` the host calls :func:`silence` and adds a callback of its own; that calls :func:`take_over` in
``on_fit_start``, and :func:`go_on` in ``on_train_batch_end``.
"""

import copy
import functools
import math
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

LEFT_ON = "STROBE_LEFT_ON"  # a variable: what stays on, of LOGGING and VALIDATION, with commas between them
LOGGING, VALIDATION = "logging", "validation"
LOCAL = ("CSVLogger", "TensorBoardLogger")  # loggers that write files only, and so can write into another folder
PACKAGES = ("lightning.pytorch", "pytorch_lightning")
ENDLESS = 10**18  # updates before a request to stop counts
TUNERS = ("LearningRateFinder", "BatchSizeFinder")  # which train a little themselves, and save and load weights
OFF = (  # Lightning's callbacks that write, log, print or end training, and the user's kinds of them
    *("Checkpoint", "SaveConfigCallback", "BasePredictionWriter"),
    *("LearningRateMonitor", "DeviceStatsMonitor", "ThroughputMonitor", "ProgressBar", "ModelSummary"),
    *("EarlyStopping", "Timer", "SpikeDetection", "StochasticWeightAveraging"),
    *TUNERS,
)
CHECKPOINTS = (  # what scripts ask trainer.checkpoint_callback for
    *("dirpath", "filename", "monitor", "mode", "save_top_k", "save_last", "current_score"),
    *("best_model_path", "best_model_score", "best_k_models", "kth_best_model_path", "last_model_path"),
)


class Nothing:
    """Stands for a logger's experiment: its attributes, its items and what it returns are itself, but for folders.

    Attributes:
        calls: how often the script has called any.
    """

    calls = 0

    def __init__(self, scratch: str) -> None:
        self.dir = self.log_dir = scratch

    def __getattr__(self, _: str) -> "Nothing":
        return self

    def __call__(self, *_: Any, **__: Any) -> "Nothing":
        """Do nothing."""
        Nothing.calls += 1
        return self

    __getitem__ = __call__

    def __setitem__(self, *_: Any) -> None: ...


def without_loggers(trainer_class: Any, scratch: str) -> None:
    """Let such trainers have, instead of each logger that they are given, one that does nothing; from their making on.

    ``scratch`` is as of :func:`silence`.
    """
    loggers = trainer_class.loggers

    def give(trainer: Any, given: Any) -> None:
        loggers.fset(trainer, [_silent(trainer, one, scratch) for one in given or ()])

    trainer_class.loggers = loggers.setter(give)


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

    Validation stays where it ``is_left_on``, and of the loggers those that write files, into the folder.

    Args:
        scratch: a folder for what code of the script writes into the logger's folder or the trainer's.
    """
    trainer.loggers = [_silent(trainer, one, scratch) for one in trainer.loggers]
    trainer.profiler = import_module(f"{_package(trainer)}.profilers").PassThroughProfiler()
    trainer.save_checkpoint = lambda *_, **__: None
    trainer.callbacks = [one for one in trainer.callbacks if not is_lightnings(one, OFF)]
    trainer.num_sanity_val_steps = 0
    if not is_left_on(VALIDATION):
        trainer.limit_val_batches = 0
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


def is_left_on(name: str) -> bool:
    """Whether logging or validation goes on in this process, because that is what is measured."""
    return name in os.environ.get(LEFT_ON, "").split(",")


def validation_cycle(trainer: Any, batches: float | None) -> tuple[int, float] | None:
    """The number of validations and of steps after which Lightning's loop repeats itself; None if it never validates.

    An epoch that has validations has one after each ``val_check_batch`` of its ``batches``, and none after the rest.
    The steps are infinite where nobody knows how many there are.
    """
    if not trainer.enable_validation:
        return None
    every, epochs = trainer.val_check_batch, trainer.check_val_every_n_epoch
    if seconds_between_validations(trainer) is not None:
        return 1, math.inf
    if epochs is None:  # it counts batches across epochs
        return 1, every
    if not batches or math.isinf(batches):
        return 1, math.inf
    if epochs == 1 and batches % every == 0:
        return 1, every
    return max(1, int(batches // every)), epochs * batches


def seconds_between_validations(trainer: Any) -> float | None:
    """Where the script has set them in time, as Lightning takes it since 2.6."""
    interval: float | None = getattr(trainer, "_val_check_time_interval", None)
    return interval


def is_lightnings(callback: Any, names: tuple[str, ...]) -> bool:
    """Whether it is of a class of one of Lightning's with such a name, or of one derived from it."""
    roots = ("lightning.", "pytorch_lightning.")
    return any(kind.__name__ in names and kind.__module__.startswith(roots) for kind in type(callback).__mro__)


def due(error: BaseException) -> str:
    """What to say after an error of the script that the takeover may have caused; "" after others."""
    if isinstance(error, AttributeError) and error.name in CHECKPOINTS and str(error).startswith("'NoneType'"):
        return " (checkpoints are off while it is measured)"
    return " (validation is off while it is measured)" if isinstance(error, KeyError) and "val" in str(error) else ""


def _silent(trainer: Any, logger: Any, scratch: str) -> Any:
    """A logger that takes any call, as in Lightning's own fast_dev_run, and ``stands_for`` this one by its class."""
    if is_left_on(LOGGING) and type(logger).__name__ in LOCAL and "://" not in str(logger.save_dir):
        if str(logger._root_dir) == scratch:  # it was moved before
            return logger
        moved = copy.copy(logger)
        moved._root_dir = moved._save_dir = scratch
        moved._experiment = None  # which may be open, and write where the script's logger does
        return moved
    dummy = import_module(f"{_package(trainer)}.loggers.logger").DummyLogger
    own: dict[str, Any] = dict.fromkeys(("save_dir", "log_dir", "root_dir"), scratch)
    own["stands_for"] = getattr(logger, "stands_for", type(logger).__name__)
    experiment = Nothing(scratch)
    return type("Silent", (dummy,), own | {"experiment": property(lambda _: experiment)})()


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
