"""Configurations as the commands compose them, and what is built of one."""

import copy
import functools
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from strobe.app.config.register import CONF, register


def configured(name: str, *overrides: str) -> DictConfig:
    """``conf/NAME.yaml`` with these overrides; it is Hydra's current configuration until the test ends."""
    cfg = copy.deepcopy(_composed(name, overrides))
    HydraConfig.instance().set_config(cfg)
    return cfg


def bench_config(*overrides: str) -> DictConfig:
    """The configuration of ``python -m strobe.bench`` with these overrides."""
    return configured("bench", *overrides)


def composed_data(*overrides: str) -> Any:
    """The DataModule that ``train.py`` would build with these overrides, not yet set up."""
    from strobe.app.build.instantiate import build_data  # imports torch, which not every process needs

    roots = [given.removeprefix("data.root=") for given in overrides if given.startswith("data.root=")]
    cfg = configured("config", *(given for given in overrides if not given.startswith("data.root=")))
    cfg.data.root = roots[-1] if roots else cfg.data.root
    return build_data(cfg)


@functools.cache
def _composed(name: str, overrides: tuple[str, ...]) -> DictConfig:
    """Hydra takes a fifth of a second for this, a copy of it takes a hundredth."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(overrides), return_hydra_config=True)
