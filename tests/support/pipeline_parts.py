"""Loaders, engines and sources for the tests of engines, made as the configuration has them."""

from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from PIL import Image

from strobe.app.engines.base import BatchLoader
from strobe.app.engines.sampler import EpochSampler, ShardedBatches
from strobe.app.loaders.base import LoadedData
from strobe.app.loaders.crop_policy import CropPolicy
from strobe.app.loaders.sources import ArraySource, PathTable, PhotoSource, TileSource
from support.choices import choices, make
from support.photo_files import CHOICES, made

CPU = torch.device("cpu")
SIZE = 11  # images of a source

ENGINES = choices("engine")
PAIRS = [(form, name) for name, choice in CHOICES.items() for form in choice.reads]
PROCESSES = [name for name in ENGINES if name == "torch"]  # engines whose workers are processes
BESIDE = [name for name in ENGINES if name != "resident"]  # engines that load while training goes on


def batches(size: int = SIZE, batch_size: int = 4, **options: Any) -> ShardedBatches:
    """A shuffled epoch."""
    return ShardedBatches(EpochSampler(size, shuffle=True, seed=3), batch_size, **options)


def loader(name: str, dataset: LoadedData, sharded: ShardedBatches, workers: int, **options: object) -> BatchLoader:
    """Batches of a data set by an engine with so many workers."""
    engine = make(ENGINES[name], num_workers=workers, **options)
    made_loader: BatchLoader = engine.loader(dataset, sharded, seed=1, device=CPU)
    return made_loader


def dataset(form: str, name: str, folder: Path, *, bad: int | None = None, **options: object) -> LoadedData:
    """Images read by a loader, whose labels are their indices; file ``bad`` is none of the kind."""
    return made(name, source(form, folder, bad), folder / "packed", **options)


def source(form: str, folder: Path, bad: int | None = None) -> Any:
    """A small source of one form; no two images are alike."""
    everything, random = torch.arange(SIZE), np.random.default_rng(1)
    if form == "array":
        images = torch.from_numpy(random.integers(256, size=(SIZE, 3, 8, 8), dtype=np.uint8))
        return ArraySource(images, everything, everything)
    paths = [folder / f"{form}_{index}.{'tif' if form == 'tiles' else 'jpg'}" for index in range(SIZE)]
    for index, path in enumerate(paths):
        if index == bad:
            path.write_text("This is not an image.")
        elif form == "tiles":
            tifffile.imwrite(path, random.integers(5000, size=(16, 16, 13), dtype=np.uint16), planarconfig="contig")
        else:
            shade = random.integers(256, size=(40 + index, 60, 3), dtype=np.uint8)
            Image.fromarray(shade).save(path, quality=90)
    table = PathTable([str(path) for path in paths])
    if form == "tiles":
        return TileSource(table, everything, everything, (13, 16, 16), (3, 2, 1), 4000.0)
    return PhotoSource(table, everything, everything, CropPolicy("resize", 32))  # which every loader can do
