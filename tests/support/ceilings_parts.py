"""Configurations and data for the tests of ceilings."""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import initialize_config_dir
from omegaconf import DictConfig

from strobe.app.build.instantiate import build_data
from strobe.app.config.compose import recomposed
from strobe.app.config.register import register
from strobe.app.data.base import ImageData
from support.places import ROOT

SMALL = (
    "trainer.accelerator=cpu",
    "data.batch_size=4",
    "data.tiles_per_class=10",
    "model._target_=strobe.validation.injected_faults.SmallClassifier",
    "ceilings_seconds=0.1",
)


@contextlib.contextmanager
def composed(root: Path, *overrides: str) -> Iterator[tuple[DictConfig, ImageData, list[str]]]:
    """A small configuration, its data set up, and the overrides that make it."""
    register()
    given = [*SMALL, f"data.root={root}", *overrides]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"), recomposed(given) as cfg:
        data = build_data(cfg)
        data.prepare_data()
        data.setup()
        yield cfg, data, given


def random_states() -> list[Any]:
    """Of every generator that a run draws from."""
    name, keys, *rest = np.random.get_state()
    return [torch.get_rng_state().tolist(), name, keys.tolist(), rest, random.getstate(), torch.get_num_threads()]


def order(data: ImageData) -> list[list[int]]:
    """The indices of each batch of the first epoch, without loading them."""
    return [list(indices) for indices in data.batches("train", data.batch_size, shuffle=True).batch_sampler]


def slow(data: Any, seconds: float) -> None:
    """Let the loader of ``data`` sleep before each tile."""
    read = data.loader.read

    def sleeping(path: str, source: Any) -> Any:
        time.sleep(seconds)
        return read(path, source)

    data.loader.read = sleeping
