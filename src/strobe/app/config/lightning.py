"""Checks Lightning's arguments by its source, so a mistake is reported before torch is imported."""

import ast
import builtins
import os
import re
import typing
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from omegaconf import DictConfig, OmegaConf

from strobe.errors import ConfigError
from strobe.measure.environment import has_gpu
from strobe.present.format import counted

SHARES = ("limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches", "overfit_batches")
NEEDS = {"tpu": "torch_xla", "hpu": "lightning_habana"}  # packages of accelerators
LOGGERS = {  # their files, and what they pass on to TensorBoard's writer
    "TensorBoardLogger": ("loggers/tensorboard.py", "purge_step", "max_queue", "flush_secs", "filename_suffix"),
    "CSVLogger": ("loggers/csv_logs.py",),
}
COUNTS = ("accumulate_grad_batches", "check_val_every_n_epoch", "val_check_interval")
OURS = ("logger", "callbacks", "default_root_dir", "use_distributed_sampler")  # what a run sets itself
PRECISIONS = (
    *("32-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "64-true"),
    *("transformer-engine", "transformer-engine-float16"),
)
WORDS: dict[Any, str] = {  # what to give of each type
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
    list: "a list, such as [0,1]",
    dict: "a group of keys",
    type(None): "null",
}
ALSO = (16, 32, 64, "16", "32", "64", "bf16", None)  # older names of these


def check_lightning(cfg: DictConfig, varied: Collection[str] = ()) -> None:
    """Raise a :class:`ConfigError` for an argument of Trainer or logger that would be refused.

    Keys and groups that a sweep has ``varied`` are left out.
    """
    for group, check in (("trainer", check_trainer), ("logger", check_logger)):
        if {group, "experiment"}.isdisjoint(varied):
            given: Any = OmegaConf.to_container(cfg[group], resolve=True)
            check({key: value for key, value in given.items() if f"{group}.{key}" not in varied})


def check_trainer(arguments: Mapping[str, Any]) -> None:
    """Raise a :class:`ConfigError` for a ``trainer.*`` that Lightning's Trainer or this machine would refuse."""
    hints = trainer_hints()
    for key, value in arguments.items():
        if key not in hints:
            near = get_close_matches(str(key), hints, 1)
            meant = f"did you mean trainer.{near[0]}?" if near else "leave it out"
            raise ConfigError(f"trainer.{key}={value} is not an argument of Lightning's Trainer; {meant}")
        if key in OURS:
            raise ConfigError(f"trainer.{key} is set by each run itself; leave it out")
        if not _is_a(value, hints[key]):
            raise ConfigError(f"trainer.{key}={value} has a wrong type; give {_words(hints[key])}")
        if key in COUNTS and value == 0:
            raise ConfigError(f"trainer.{key}=0 is out of range; it must be at least 1")
        if key in SHARES and value is not None and (value < 0 or (value > 1 and value % 1)):
            raise ConfigError(f"trainer.{key}={value} is out of range; give a number of batches, or a share up to 1")
    if (precision := arguments.get("precision")) not in (*PRECISIONS, *ALSO):
        raise ConfigError(f"trainer.precision={precision} is not a choice; choose one of {', '.join(PRECISIONS)}")
    if isinstance(longest := arguments.get("max_time"), str) and not re.fullmatch(r"\d+:\d\d:\d\d:\d\d", longest):
        raise ConfigError(
            f"trainer.max_time={longest} is not a duration; give days:hours:minutes:seconds, as 00:00:10:00"
        )
    if (accelerator := arguments.get("accelerator")) in ("gpu", "cuda") and not has_gpu():
        raise ConfigError(f"trainer.accelerator={accelerator}, but there is no GPU here; give trainer=cpu")
    if (package := NEEDS.get(str(accelerator))) and find_spec(package) is None:
        raise ConfigError(f"trainer.accelerator={accelerator} needs {package}; install it, or give trainer=cpu")
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not has_gpu())
    check_devices(arguments.get("devices"), os.cpu_count() or 1 if on_cpu else None)


def check_logger(arguments: Mapping[str, Any]) -> None:
    """Raise a :class:`ConfigError` for a ``logger.*`` that Lightning's own logger would refuse."""
    module, _, kind = str(arguments.get("_target_")).rpartition(".")
    if not module.startswith("lightning.pytorch.loggers") or kind not in LOGGERS:
        return
    file, *also = LOGGERS[kind]
    known = [name for name in (*_annotations(file, kind), *also) if name != "save_dir"]
    if unknown := [key for key in arguments if key not in (*known, "_target_")]:
        key = unknown[0]
        raise ConfigError(
            f"logger.{key}={arguments[key]} is not an argument of Lightning's {kind}; it takes {', '.join(known)}"
        )


def check_devices(devices: Any, cores: int | None) -> None:
    """Raise a :class:`ConfigError` for no device, or for more than so many cores; None if not on a CPU."""
    if devices in (0, "0"):
        raise ConfigError(f"trainer.devices={devices} is out of range; it must be at least 1")
    if cores and isinstance(devices, int) and devices > cores:
        raise ConfigError(f"trainer.devices={devices} on a CPU of {counted(cores, 'core')}; give at most {cores}")


@cache
def trainer_hints() -> dict[str, Any]:
    """The types of the Trainer's arguments, by name, as far as a configuration can hold them."""
    return {
        name: eval(compile(ast.Expression(annotation), "Trainer", "eval"), {}, _Names())
        for name, annotation in _annotations("trainer/trainer.py", "Trainer").items()
    }


def _annotations(file: str, kind: str) -> dict[str, ast.expr]:
    """The arguments of a class of Lightning's, by name."""
    package = find_spec("lightning")
    assert package is not None
    assert package.origin is not None
    source = Path(package.origin).with_name("pytorch") / file
    (node,) = (node for node in ast.parse(source.read_text()).body if getattr(node, "name", "") == kind)
    (start,) = (node for node in ast.walk(node) if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    return {each.arg: each.annotation for each in (*start.args.args, *start.args.kwonlyargs) if each.annotation}


class _Object:
    """Stands for classes of Lightning and torch."""


class _Names(dict[str, Any]):
    """The names that annotations use, looked up without importing Lightning.

    Its aliases, such as ``_PATH``, fit anything; its classes and torch's fit no value of a configuration.
    """

    def __missing__(self, name: str) -> Any:
        other = Any if name.startswith("_") else _Object
        return getattr(typing, name, getattr(builtins, name, other))


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Union else (hint,)


def _is_a(value: Any, hint: Any) -> bool:
    for option in _options(hint):
        kind = get_origin(option) or option
        if kind is int:
            fits = isinstance(value, int) and not isinstance(value, bool)
        else:
            fits = kind is Any or isinstance(value, (int, float) if kind is float else kind)
        if fits:
            return True
    return False


def _words(hint: Any) -> str:
    """What to give for a type, in words."""
    kinds = [get_origin(option) or option for option in _options(hint)]
    kinds = [kind for kind in kinds if not (kind is int and float in kinds)]
    return " or ".join(WORDS.get(kind, kind.__name__) for kind in kinds if kind is not _Object)
