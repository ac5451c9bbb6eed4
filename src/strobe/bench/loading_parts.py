"""Loading without an engine: tiles by every loader, CIFAR-10 in batches and one by one, and what memory costs."""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from skimage.io import imread
from torch import Tensor

from strobe.app.build.instantiate import build_data
from strobe.app.config.checks import loaders_for
from strobe.app.config.compose import configure
from strobe.app.data.base import ImageData
from strobe.app.engines.base import WholeBatches
from strobe.app.engines.sampler import Indices
from strobe.app.loaders.base import Batch, LoadedData
from strobe.app.loaders.buffer_pool import Buffers, shared
from strobe.app.loaders.sources import TileSource
from strobe.app.native import tiles as native
from strobe.app.native.build import load
from strobe.bench.contest import Entrant, Result, Work, contest
from strobe.bench.inputs import prepared

FLOOR = "open, read, close"
COPY = "copying the pixels"
PLAIN = "skimage.io.imread, a plain loop"
TILE_BATCHES = (32, 256)
BUFFER_BATCHES = (1, 32, 64, 1024)


def tiles(overrides: list[str], rounds: int, seconds: float) -> dict[int, list[Result]]:
    """RGB of real tiles, on one thread, files in the page cache: images/s of every loader and of two floors.

    By batch size.
    """
    torch.set_num_threads(1)
    given = ["data=eurosat", *overrides]
    data, _ = prepared(given)
    with TemporaryDirectory() as packs:
        return {
            size: contest(_tile_entrants(data, given, packs, size), rounds=rounds, seconds=seconds)
            for size in TILE_BATCHES
        }


def _tile_entrants(data: ImageData, overrides: list[str], packs: str, size: int) -> list[Entrant]:
    source: TileSource = data.found["train"]
    packed = [*overrides, *loader_keys("packed", packs)]
    return [
        *(loader_entrant(data, overrides, name, packs, size) for name in loaders_for("tiles")),
        Entrant(PLAIN, lambda: plain_skimage(source, size)),
        Entrant(FLOOR, lambda: read_only(source, size)),
        Entrant(COPY, lambda: copying(alike(data, packed).datasets["train"], size)),
    ]


def cifar10(overrides: list[str], rounds: int, seconds: float) -> list[Result]:
    """CIFAR-10 from memory, batches of 1,024 (or ``data.batch_size``): one gather, or one image at a time."""
    torch.set_num_threads(1)
    common = ["data=cifar10", "data.verify=false", *overrides]
    data, _ = prepared(common)
    ways = {
        "one gather a batch": ["loader.batched=true"],
        "one image at a time": ["loader.batched=false"],
        "one image at a time, scaled by NumPy": ["loader.batched=false", "loader.scale=numpy"],
    }
    return contest(
        [Entrant(name, _batches_of(data, [*common, *given], 1024)) for name, given in ways.items()],
        rounds=rounds,
        seconds=seconds,
    )


def buffers(overrides: list[str], rounds: int, seconds: float) -> dict[int, list[Result]]:
    """Batches of RGB tiles made and standardised in fresh memory, and in memory that is used again, by batch size."""
    data, _ = prepared(["data=eurosat", *overrides])
    return {size: contest(_buffer_entrants(data, size), rounds=rounds, seconds=seconds) for size in BUFFER_BATCHES}


def _buffer_entrants(data: ImageData, size: int) -> list[Entrant]:
    shape = (size, data.channels, *data.found["train"].shape[1:])
    source = torch.randint(0, 4000, shape).to(torch.uint16)
    pool = Buffers()

    def fill(take: Callable[[], Tensor]) -> Work:
        def work() -> int:
            take().copy_(source)
            return size

        return work

    def out_of_place() -> int:
        images = (source.float() / data.full_scale).clamp(0, 1)
        images = (images - data.mean.view(-1, 1, 1)) / data.std.view(-1, 1, 1)
        return size

    def in_place() -> int:
        data.normalise(source)
        return size

    return [
        Entrant("batch in fresh memory", lambda: fill(lambda: torch.empty(shape, dtype=torch.uint16))),
        Entrant("batch in new shared memory", lambda: fill(lambda: shared(shape, torch.uint16))),
        Entrant("batch in reused memory", lambda: fill(lambda: pool.take(shape, torch.uint16))),
        Entrant("normalised out of place", lambda: out_of_place),
        Entrant("normalised in place, reused", lambda: in_place),
    ]


def alike(data: ImageData, overrides: list[str]) -> ImageData:
    """The same images, loaded as ``overrides`` say."""
    return data.loaded_by(build_data(configure(overrides)))


def loader_entrant(data: ImageData, overrides: list[str], choice: str, packs: str, size: int) -> Entrant:
    """Training batches of one loader, such as ``native`` or ``native loader.threads=2``, made in this thread."""
    return Entrant(f"loader={choice}", _batches_of(data, [*overrides, *loader_keys(choice, packs)], size))


def loader_keys(choice: str, packs: str) -> list[str]:
    """A loader's overrides; what it packs, it packs below ``packs``."""
    given = f"loader={choice}".split()
    return [*given, f"loader.directory={packs}"] if given[0] == "loader=packed" else given


def _batches_of(data: ImageData, overrides: list[str], size: int) -> Callable[[], Work]:
    def make() -> Work:
        dataset = alike(data, overrides).datasets["train"]
        return making(dataset, min(size, len(dataset)))

    return make


def making(dataset: LoadedData, size: int) -> Work:
    """Makes whole batches, the images in random order, each as often as the others."""
    whole, batches = WholeBatches(dataset), orders(range(len(dataset)), size)

    def work() -> int:
        batch: Batch = whole.__getitems__(next(batches))
        return len(batch[1])

    return work


def orders(chosen: Sequence[int], size: int) -> Iterator[Indices]:
    """Batches of the chosen indices, permutation after permutation, without end; ``size`` may be greater."""
    generator = np.random.default_rng(0)
    waiting: list[int] = []
    epoch = number = 0
    while True:
        if len(waiting) < size:
            waiting += generator.permutation(chosen).tolist()
            epoch, number = epoch + 1, 0
            continue
        yield Indices(waiting[:size], split="train", epoch=epoch, number=number)
        del waiting[:size]
        number += 1


def plain_skimage(source: TileSource, size: int) -> Work:
    """As one would write it by hand: no data set, no spans."""
    paths = cycle([source.path(index) for index in range(len(source))])
    bands = list(source.bands)

    def work() -> int:
        pixels = [np.moveaxis(imread(next(paths))[..., bands], -1, 0) for _ in range(size)]
        torch.from_numpy(np.stack(pixels))
        return size

    return work


def read_only(source: TileSource, size: int) -> Work:
    """The floor for one file a tile: the files are opened, read whole and closed, by the native code."""
    load(native.LIBRARY)
    batches = orders(range(len(source)), size)

    def work() -> int:
        native.read_only(source.paths, source.indices[next(batches)], threads=1)
        return size

    return work


def copying(data: Any, size: int) -> Work:
    """The floor for a pack: the same bytes of it, in their order there, copied into memory that was used before."""
    length = data.planes.shape[0] * data.images.layout.image_bytes // data.images.layout.shape[0]
    pieces = cycle(torch.split(data.images.rows[:, :length], size)[:-1])
    target = torch.ones(size, length, dtype=torch.uint8)

    def work() -> int:
        target.copy_(next(pieces))
        return size

    return work
