"""Lightning's Trainer from a dictionary of its arguments; what Lightning refuses becomes one line."""

import os
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from lightning import Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf

from strobe.errors import ConfigError
from strobe.present.format import counted
from strobe.probe.model import ALONE

COUNTS = ("accumulate_grad_batches", "check_val_every_n_epoch", "val_check_interval")


def build_trainer(arguments: dict[str, Any], **parts: Any) -> Trainer:
    """A Trainer from the keys below ``trainer.`` and the objects that the configuration does not name.

    A :class:`ConfigError` names an argument of a wrong type, or that Lightning or this machine refuses.
    """
    hints = get_type_hints(Trainer.__init__)
    for key, value in arguments.items():
        if key not in hints:
            raise ConfigError(f"trainer.{key}={value} is no argument of Lightning's Trainer; remove it")
        if not _is_a(value, hints[key]):
            raise ConfigError(f"trainer.{key}={value} has a wrong type; Lightning takes {_words(hints[key])}")
        if key in COUNTS and value == 0:
            raise ConfigError(f"trainer.{key}=0 is out of range; it must be at least 1")
    accelerator = arguments["accelerator"]
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise ConfigError(f"trainer.accelerator={accelerator}: torch sees no GPU here; set trainer=cpu")
    try:
        trainer = Trainer(**arguments, **parts)
    except (MisconfigurationException, ValueError, TypeError, ImportError) as error:
        reason = " ".join(str(error).split())
        named = [key for key in arguments if key in reason] or ["accelerator", "strategy", "devices"]
        given = " ".join(f"trainer.{key}={arguments[key]}" for key in named)
        raise ConfigError(f"Lightning refuses {given}: {reason}") from error
    cores = os.cpu_count() or 1
    if trainer.strategy.root_device.type == "cpu" and trainer.num_devices > cores:
        raise ConfigError(
            f"trainer.devices={trainer.num_devices} on a CPU of {counted(cores, 'core')}; give at most {cores}"
        )
    return trainer


def lone_trainer(cfg: DictConfig) -> Trainer:
    """The run's Trainer, less all that looks on, writes or validates."""
    arguments: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    for key in ("barebones", "callbacks"):
        arguments.pop(key, None)
    return build_trainer(arguments | ALONE)


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_a(value: Any, hint: Any) -> bool:
    for option in _options(hint):
        kind = get_origin(option) or option
        if kind is Literal:
            fits = value in get_args(option)
        elif kind is int:
            fits = isinstance(value, int) and not isinstance(value, bool)
        else:
            fits = kind is Any or isinstance(value, (int, float) if kind is float else kind)
        if fits:
            return True
    return False


def _words(hint: Any) -> str:
    """A type hint as a person writes it."""
    names: list[str] = []
    for option in _options(hint):
        if get_origin(option) is Literal:
            names += map(str, get_args(option))
        else:
            names.append("null" if option is type(None) else getattr(option, "__name__", str(option)))
    return ", ".join(names)
