"""Configurations as the commands compose them, and what is built of one."""

import copy
import functools
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from strobe.app.config.register import CONF, register

GROUPS = {path.name for path in CONF.iterdir() if path.is_dir()}


def configured(name: str, *overrides: str) -> DictConfig:
    """``conf/NAME.yaml`` with these overrides; it is Hydra's current configuration until the test ends.

    Hydra takes a fifth of a second to compose; so choices are composed once, and it sets plain values in a copy.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    values = [override for override in parsed if _is_value(override)]
    cfg = copy.deepcopy(_composed(name, tuple(str(one.input_line) for one in parsed if not _is_value(one))))
    ConfigLoaderImpl._apply_overrides_to_config(values, cfg)
    cfg.hydra.overrides.task = [one.input_line for one in parsed if not one.is_hydra_override()]
    HydraConfig.instance().set_config(cfg)
    return cfg


def _is_value(override: Override) -> bool:
    """Whether it only gives a key another value."""
    more = override.is_add() or override.is_force_add() or override.is_delete() or override.is_sweep_override()
    return not (more or override.is_hydra_override() or override.key_or_group in GROUPS)


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
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(overrides), return_hydra_config=True)
