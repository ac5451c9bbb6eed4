"""Composing the application's configuration: for other commands, and again with other overrides within a run."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from strobe.app.config.checks import check, without_hydra
from strobe.app.config.presets import ENDLESS, SHORT
from strobe.app.config.register import register
from strobe.overrides import as_typed

CONF = Path(__file__).parents[4] / "conf"


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


@contextmanager
def recomposed(overrides: Sequence[str]) -> Iterator[DictConfig]:
    """The checked configuration that ``overrides`` make; later ones replace earlier ones.

    Hydra must have been initialised, as it is within ``hydra.main``. Within the block its own configuration is the
    new one, and afterwards the old one again.

    Raises:
        HydraException: the overrides cannot be composed.
        ConfigError: they do not make sense together.
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
    """A key and its value in Hydra's own spelling, which a sweep's cells get: ``1e-3`` is ``0.001`` there."""
    key, value = as_typed(override)
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException:
        return key, value
    if not parsed.is_sweep_override() and value:
        given = parsed.value()
        value = given if isinstance(given, str) else parsed.get_value_element_as_str()
    return key, value
