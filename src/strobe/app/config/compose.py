"""Configurations of ``train.py``, composed by other commands for trainings that are measured and not kept."""

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from strobe.app.config.register import register

CONF = Path(__file__).parents[4] / "conf"
SHORT = (  # a training that is measured, and not kept
    "trainer.max_epochs=-1",
    "trainer.limit_val_batches=0",
    "trainer.num_sanity_val_steps=0",
    "trainer.enable_checkpointing=false",
    "profiler=none",
)
ENDLESS = (  # what a configuration is overridden with that would train for a while, and be looked at meanwhile
    *SHORT[:-1],
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


def configure(overrides: Sequence[str]) -> DictConfig:
    """The application's own configuration, for a training that is not kept unless overrides say otherwise."""
    return composed([*SHORT, *overrides])


def endless(overrides: Sequence[str]) -> DictConfig:
    """The application's own configuration with the overrides, but for a training that never ends."""
    return composed([*overrides, *ENDLESS])


def composed(overrides: Sequence[str]) -> DictConfig:
    """The application's own configuration; it becomes Hydra's current one.

    Raises:
        ConfigCompositionException: Hydra's sentence on a key or a value that there is not.
    """
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", overrides=list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    return cfg
