"""Configurations whose training the plain loop cannot do as well."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from strobe.errors import ConfigError

PLAIN: Mapping[str, tuple[Any, ...]] = {  # what the plain loop does as well
    "trainer.precision": ("32-true", "32", 32, "bf16-mixed", "bf16"),
    "trainer.accumulate_grad_batches": (1,),
    "trainer.gradient_clip_val": (None, 0),
    "trainer.detect_anomaly": (False,),
    "trainer.strategy": ("auto",),
    "model.lr_scaling": ("none",),
}


def require_plain(cfg: DictConfig) -> None:
    """Refuse what the plain loop does not do, for the two would not train the same.

    Raises:
        ConfigError: a key has another value than those of ``PLAIN``.
    """
    for key, values in PLAIN.items():
        if (value := OmegaConf.select(cfg, key)) not in values:
            raise ConfigError(
                f"{key}={value} is nothing that the plain loop does, and the two would not train the same; give "
                f"{key}={'null' if values[0] is None else values[0]}"
            )
