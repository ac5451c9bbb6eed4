"""Composes the application's configuration: for other commands, again within a run, and for trainings to measure."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import yaml
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf

from strobe.app.config.checks import check, without_hydra
from strobe.app.config.register import composing
from strobe.errors import ConfigError
from strobe.overrides import as_typed, split

UNVALIDATED = ("trainer.limit_val_batches=0", "trainer.num_sanity_val_steps=0")
UNSAVED = ("trainer.enable_checkpointing=false",)
BARE = ("trainer.enable_progress_bar=false", "profiler=none", "test=false", "ceilings=false")  # only training
MEASURED_TRAINING = ("trainer.max_epochs=-1", *UNVALIDATED, *UNSAVED, "profiler=none")  # other overrides end it
ENDLESS_TRAINING = (  # nothing is between its steps
    "trainer.max_epochs=-1",
    "trainer.limit_val_batches=0",  # without validation there is no sanity check either
    *UNSAVED,
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


def configure(overrides: Sequence[str]) -> DictConfig:
    """The application's configuration for a training whose results are not kept, unless overrides say otherwise."""
    return composed([*MEASURED_TRAINING, *overrides])


def endless(overrides: Sequence[str]) -> DictConfig:
    """The application's configuration with these overrides, for a training that never ends."""
    return composed([*overrides, *ENDLESS_TRAINING])


def composed(overrides: Sequence[str]) -> DictConfig:
    """The application's configuration, which becomes Hydra's current one; Hydra raises its own errors."""
    with composing():
        cfg = compose("config", overrides=list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    return cfg


def in_sweep() -> bool:
    """Whether the current configuration is that of a sweep's cell (Hydra numbers these jobs)."""
    return not OmegaConf.is_missing(HydraConfig.get().job, "num")


@contextmanager
def recomposed(overrides: Sequence[str]) -> Iterator[DictConfig]:
    """The checked configuration that ``overrides`` make; later ones replace earlier ones.

    Hydra must have been initialised, as it is within ``hydra.main``. Within the block its own configuration is the
    new one, and afterwards the old one again. Raises a HydraException if the overrides cannot be composed, a
    ConfigError if the values do not fit together.
    """
    hydra = HydraConfig.instance()
    before = hydra.cfg
    name = HydraConfig.get().job.config_name if HydraConfig.initialized() else "config"
    try:
        cfg = compose(name, list(overrides), return_hydra_config=True)
        hydra.set_config(cfg)
        cfg = without_hydra(cfg)
        check(cfg)
        yield cfg
    finally:
        hydra.cfg = before


@functools.lru_cache(maxsize=4096)
def parse(override: str) -> tuple[str, str]:
    """A key and its value in Hydra's spelling, which a sweep's cells get: ``1e-3`` becomes ``0.001``."""
    key, value = as_typed(override)
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException:
        return key, value
    if not parsed.is_sweep_override() and value:
        typed = parsed.value()
        value = typed if isinstance(typed, str) else parsed.get_value_element_as_str()
    return key, value


def endings(callbacks: Mapping[Any, Any]) -> list[str]:
    """Overrides that remove the callbacks that would end a training before it is measured."""
    return [f"~callbacks.{name}" for name, node in callbacks.items() if str(node.get("_target_")).endswith(ENDING)]


def require_endless(cfg: DictConfig) -> None:
    """Raise a :class:`ConfigError` for a value that would end or interrupt a training."""
    wanted = {key: yaml.safe_load(value) for key, value in map(split, ENDLESS_TRAINING)}
    unfit = {key: value for key in wanted if (value := OmegaConf.select(cfg, key)) != wanted[key]}
    for key in ("trainer.devices", "trainer.num_nodes"):
        value = OmegaConf.select(cfg, key)
        if (len(value) if isinstance(value, ListConfig) else value) not in (1, "1"):  # a count, or a list of indices
            unfit[key] = value
    for key, value in unfit.items():
        raise ConfigError(
            f"{key}={value} does not fit a training that is timed for some seconds, on one device, without validation, "
            "schedule, profiler or checkpoints; leave it out, and give turn_seconds=S for a longer one"
        )


def require_one_device(devices: object) -> None:
    """Raise a :class:`ConfigError` for several ranks, which cannot take turns in one process."""
    several = len(devices) > 1 if isinstance(devices, Sequence) and not isinstance(devices, str) else devices
    if several is not False and str(several) not in ("1", "auto", "-1"):
        raise ConfigError(
            f"trainer.devices={devices} cannot be tuned: a training takes turns in one process; tune with "
            "trainer.devices=1, and then train with what was found"
        )
