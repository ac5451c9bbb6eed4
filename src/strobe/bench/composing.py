"""Configurations of ``train.py`` for a benchmark's cells."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from strobe.config import register

if TYPE_CHECKING:
    from strobe.data.base import ImageData

CONF = Path(__file__).parents[3] / "conf"
SHORT = (  # a training that is measured, and not kept
    "trainer.max_epochs=-1",
    "trainer.limit_val_batches=0",
    "trainer.num_sanity_val_steps=0",
    "trainer.enable_checkpointing=false",
    "profiler=none",
)


def configure(overrides: Sequence[str]) -> DictConfig:
    """The application's own configuration, for a training that is not kept."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", overrides=[*SHORT, *overrides], return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    return cfg


def prepared(overrides: Sequence[str]) -> "tuple[ImageData, DictConfig]":
    """The data of a configuration, found and split."""
    from strobe.compose import build_data

    cfg = configure(overrides)
    data = build_data(cfg)
    data.prepare_data()
    data.setup()
    return data, cfg
