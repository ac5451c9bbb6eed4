"""Configurations whose training cannot be timed, or not be written as a plain loop as well."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from strobe.errors import ConfigError

SINGLE = (1, "1")
ENDLESS: Mapping[str, tuple[Any, ...]] = {  # what a training without an end, validation or checkpoints has
    "trainer.max_epochs": (-1,),
    "trainer.max_steps": (-1,),
    "trainer.max_time": (None,),
    "trainer.min_epochs": (None,),
    "trainer.min_steps": (None,),
    "trainer.fast_dev_run": (False,),
    "trainer.overfit_batches": (0,),
    "trainer.limit_train_batches": (None,),
    "trainer.limit_val_batches": (0,),
    "trainer.enable_checkpointing": (False,),
    "trainer.devices": SINGLE,
    "trainer.num_nodes": SINGLE,
    "model.scheduler": ("none",),
    "profiler._target_": (None,),
    "ckpt_path": (None,),
}
PLAIN: Mapping[str, tuple[Any, ...]] = {  # what the plain loop does as well
    "trainer.precision": ("32-true", "32", 32, "bf16-mixed", "bf16"),
    "trainer.accumulate_grad_batches": (1,),
    "trainer.gradient_clip_val": (None, 0),
    "trainer.detect_anomaly": (False,),
    "trainer.strategy": ("auto",),
    "model.lr_scaling": ("none",),
}


def require_endless(cfg: DictConfig) -> None:
    """Refuse what ends a training before its measurement does, or happens between its steps.

    Raises:
        ConfigError: a key has another value than those of ``ENDLESS``.
    """
    _require(
        cfg,
        ENDLESS,
        "does not fit a training that is timed for some seconds, on one device, without validation, schedule, profiler "
        "or checkpoints; leave it out, and give turn_seconds=S for a longer one",
    )


def require_plain(cfg: DictConfig) -> None:
    """Refuse what the plain loop does not do, for the two would not train the same.

    Raises:
        ConfigError: a key has another value than those of ``PLAIN``.
    """
    _require(cfg, PLAIN, "is nothing that the plain loop does, and the two would not train the same; give {instead}")


def _require(cfg: DictConfig, allowed: Mapping[str, tuple[Any, ...]], reason: str) -> None:
    for key, values in allowed.items():
        value = OmegaConf.select(cfg, key)
        if isinstance(value, ListConfig) and len(value) == 1 and values is SINGLE:  # the one with this number
            continue
        if value not in values:
            shown = "null" if values[0] is None else values[0]
            raise ConfigError(f"{key}={value} {reason.format(instead=f'{key}={shown}')}")
