"""Trainings that are measured and not kept: their overrides, and what does not fit them."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf

from strobe.errors import ConfigError
from strobe.overrides import split

SHORT = (  # a training that a few other overrides end
    "trainer.max_epochs=-1",
    "trainer.limit_val_batches=0",
    "trainer.num_sanity_val_steps=0",
    "trainer.enable_checkpointing=false",
    "profiler=none",
)
ENDLESS = (  # a training that never ends, with nothing between its steps
    "trainer.max_epochs=-1",
    "trainer.limit_val_batches=0",  # without validation there is no sanity check either
    "trainer.enable_checkpointing=false",
    "trainer.max_steps=-1",
    "trainer.max_time=null",
    "trainer.min_epochs=null",
    "trainer.min_steps=null",
    "trainer.fast_dev_run=false",
    "trainer.overfit_batches=0.0",
    "trainer.limit_train_batches=null",
    "model.scheduler=none",  # which would need to know the end
    "profiler._target_=null",  # the other keys of the profiler's may be given all the same
    "ckpt_path=null",
)
ENDING = (".EarlyStopping", ".Timer")  # Lightning's callbacks that end a training


def endings(callbacks: Mapping[Any, Any]) -> list[str]:
    """Overrides that leave out the callbacks which would end a training before it is measured."""
    return [f"~callbacks.{name}" for name, node in callbacks.items() if str(node.get("_target_")).endswith(ENDING)]


def require_endless(cfg: DictConfig) -> None:
    """Refuse what ends a training before its measurement does, or happens between its steps.

    Raises:
        ConfigError: a key has another value than in ``ENDLESS``, or there are several devices.
    """
    wanted = {key: yaml.safe_load(value) for key, value in map(split, ENDLESS)}
    found = {key: OmegaConf.select(cfg, key) for key in wanted}
    several = {key: OmegaConf.select(cfg, key) for key in ("trainer.devices", "trainer.num_nodes")}
    unfit = [(key, value) for key, value in found.items() if value != wanted[key]]
    unfit += [(key, value) for key, value in several.items() if not _is_single(value)]
    for key, value in unfit:
        raise ConfigError(
            f"{key}={value} does not fit a training that is timed for some seconds, on one device, without validation, "
            "schedule, profiler or checkpoints; leave it out, and give turn_seconds=S for a longer one"
        )


def require_one_device(devices: object) -> None:
    """Raise a :class:`ConfigError` for several ranks, which cannot take turns in a process."""
    several = len(devices) > 1 if isinstance(devices, Sequence) and not isinstance(devices, str) else devices
    if several is not False and str(several) not in ("1", "auto", "-1"):
        raise ConfigError(
            f"trainer.devices={devices} cannot be tuned: a training takes turns in one process; tune with "
            "trainer.devices=1, and then train with what was found"
        )


def _is_single(value: Any) -> bool:
    """Whether it asks for one device: a count, or a list with the number of one."""
    return len(value) == 1 if isinstance(value, ListConfig) else value in (1, "1")
