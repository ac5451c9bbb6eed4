"""The data of a configuration of ``train.py``, for a benchmark's cells."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from strobe.app.config.compose import configure

if TYPE_CHECKING:
    from strobe.app.data.base import ImageData


def prepared(overrides: Sequence[str]) -> "tuple[ImageData, DictConfig]":
    """The data of a configuration, found and split."""
    from strobe.app.build.instantiate import build_data

    cfg = configure(overrides)
    data = build_data(cfg)
    data.prepare_data()
    data.setup()
    return data, cfg
