"""The configuration of a run, composed again with more overrides."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, flag_override

from strobe.app.config.checks import check


@contextmanager
def recomposed(overrides: Sequence[str]) -> Iterator[DictConfig]:
    """The checked configuration that ``overrides`` make; later ones replace earlier ones.

    Hydra must have been initialised, as it is within ``hydra.main``. Within the block its own configuration is the
    new one, and afterwards the old one again.

    Raises:
        HydraException: the overrides cannot be composed, or do not make sense together (``ConfigError``).
    """
    hydra = HydraConfig.instance()
    before = hydra.cfg
    name = HydraConfig.get().job.config_name if HydraConfig.initialized() else "config"
    try:
        cfg = compose(name, list(overrides), return_hydra_config=True)
        hydra.set_config(cfg)
        cfg = cfg.copy()
        with flag_override(cfg, ["struct", "readonly"], [False, False]):
            del cfg["hydra"]
        check(cfg)
        yield cfg
    finally:
        hydra.cfg = before
