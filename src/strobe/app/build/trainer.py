"""Lightning's Trainer from a dictionary of its arguments; if Lightning refuses one, the error is one sentence."""

import os
from typing import Any

import torch
from lightning import Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf

from strobe.app.config.lightning import check_devices
from strobe.errors import ConfigError
from strobe.probe.model import ALONE


def build_trainer(arguments: dict[str, Any], **parts: Any) -> Trainer:
    """A Trainer from the keys below ``trainer.`` and from objects that no key names.

    A :class:`ConfigError` names an argument that Lightning or this machine refuses.
    """
    accelerator = arguments["accelerator"]
    kinds = {"gpu": (torch.cuda, torch.mps), "cuda": (torch.cuda,)}  # that Lightning means
    if accelerator in kinds and not any(kind.is_available() for kind in kinds[accelerator]):
        raise ConfigError(f"trainer.accelerator={accelerator}, but torch sees no GPU here; give trainer=cpu")
    try:
        trainer = Trainer(**arguments, **parts)
    except (MisconfigurationException, ValueError, TypeError, ImportError) as error:
        reason = " ".join(str(error).split())
        named = [key for key in arguments if key in reason] or ["accelerator", "strategy", "devices"]
        refused = " ".join(f"trainer.{key}={arguments[key]}" for key in named)
        raise ConfigError(f"Lightning refuses {refused}: {reason}") from error
    # Images would lose digits as 16 bits before they are standardised; the network converts its own input.
    trainer.precision_plugin.convert_input = lambda data: data  # type: ignore[method-assign]
    # It would begin a broadcast in the midst of a step, and wait for the other ranks; see strobe.attach.ending.
    trainer._signal_connector._sigterm_notifier_fn = lambda *_: None  # type: ignore[method-assign]
    if trainer.strategy.root_device.type == "cpu":  # which may be known only now
        check_devices(trainer.num_devices, os.cpu_count())
    return trainer


def lone_trainer(cfg: DictConfig) -> Trainer:
    """The run's Trainer without callbacks, loggers, checkpoints and validation."""
    arguments: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    for key in ("barebones", "callbacks"):
        arguments.pop(key, None)
    torch.set_float32_matmul_precision(cfg.matmul_precision)
    return build_trainer(arguments | ALONE)
