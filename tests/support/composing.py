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

    Hydra takes a fifth of a second to compose; so choices are composed once, and it applies the rest to a copy.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    choices = tuple(str(override.input_line) for override in parsed if _is_choice(override))
    cfg = copy.deepcopy(_composed(name, choices))
    ConfigLoaderImpl._apply_overrides_to_config([one for one in parsed if not _is_choice(one)], cfg)
    cfg.hydra.overrides.task = [one.input_line for one in parsed if not one.is_hydra_override()]
    cfg.hydra.overrides.hydra += [one.input_line for one in parsed if one.is_hydra_override() and not _is_choice(one)]
    HydraConfig.instance().set_config(cfg)
    return cfg


def _is_choice(override: Override) -> bool:
    """Whether it decides what is composed; Hydra applies all others to what is, one after the other."""
    group = override.key_or_group.partition("@")[0]
    return override.is_sweep_override() or "/" in group or group in GROUPS or group == "hydra.searchpath"


def bench_config(*overrides: str) -> DictConfig:
    """The configuration of ``strobe bench`` with these overrides."""
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
