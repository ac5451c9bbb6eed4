"""What the cells of ``suite=loading`` do in their processes: make batches, or as little as a floor does."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, cycle, islice
from typing import Any

import numpy as np
import torch

from strobe.app.engines.base import WholeBatches
from strobe.app.engines.sampler import Indices
from strobe.app.loaders.packed import PackedData
from strobe.app.loaders.sources import TileSource
from strobe.app.native import tiles as native
from strobe.app.native.build import load as load_operators
from strobe.bench.harness.declare import Trial, Work
from strobe.bench.inputs import MOST_FILES, files_of, loader_keys, prepared
from strobe.bench.suites.loading.suite import COPY, PLAIN


@contextmanager
def load(trial: Trial, *, loader: str, size: int, batches: int, cold: bool) -> Iterator[Work]:
    """Whole batches of one loader, ready for a model."""
    data, _ = prepared([*trial.overrides, *loader_keys(loader, trial.input.facts["packs"])])
    dataset, source = data.datasets["train"], data.found["train"]
    some = np.random.default_rng(0).permutation(len(dataset))[:MOST_FILES].tolist()
    whole, drawn = WholeBatches(dataset), orders(some, size)

    def one() -> None:
        data.normalise(whole.__getitems__(next(drawn))[0])

    def repeat() -> int:
        for _ in range(batches):
            one()
        return batches * size

    if isinstance(dataset, PackedData):  # whose pages cannot be thrown out once they were touched

        def elsewhere() -> None:
            """Warm up the memory and the code of a batch, but touch no page of the pack."""
            pixels = dataset.buffers.take((size, *dataset.shape), dataset.dtype)
            data.normalise(dataset.loader.scaled(pixels.zero_(), dataset.source.full_scale, size))

        yield Work(repeat, warm_up=elsewhere if cold else one, files=dataset.images.paths, once=cold)
    else:
        yield Work(repeat, warm_up=one, files=[source.path(index) for index in some] if hasattr(source, "path") else [])


@contextmanager
def raw(trial: Trial, *, loader: str, size: int, keys: Sequence[str] = ()) -> Iterator[Work]:
    """Whole batches of one loader as they leave the host, neither scaled nor standardised."""
    data, _ = prepared([*trial.overrides, *keys, *loader_keys(loader, trial.input.facts["packs"])])
    dataset, source = data.datasets["train"], data.found["train"]
    size = min(size, len(dataset))
    whole, drawn = WholeBatches(dataset), orders(range(len(dataset)), size)
    files = dataset.images.paths if isinstance(dataset, PackedData) else files_of(source)
    yield Work(lambda: len(whole.__getitems__(next(drawn))[1]), files=files)


@contextmanager
def floor(trial: Trial, *, kind: str, size: int) -> Iterator[Work]:
    """What any loader of tiles must do at least, or what a plain loop does."""
    packed = loader_keys("packed", trial.input.facts["packs"]) if kind == COPY else []
    data, _ = prepared([*trial.overrides, *packed])
    source: TileSource = data.found["train"]
    work: Callable[[], Any]
    if kind == COPY:
        work = copying(data.datasets["train"], size)
    else:
        work = (plain_skimage if kind == PLAIN else read_only)(source, size)

    def repeat() -> int:
        work()
        return size

    yield Work(repeat, files=[] if packed else files_of(source))


def plain_skimage(source: TileSource, size: int) -> Callable[[], Any]:
    """As one would write it by hand: no data set, no spans."""
    from skimage.io import imread

    paths, bands = cycle(files_of(source)), list(source.bands)
    return lambda: torch.from_numpy(
        np.stack([np.moveaxis(imread(next(paths))[..., bands], -1, 0) for _ in range(size)])
    )


def read_only(source: TileSource, size: int) -> Callable[[], Any]:
    """The floor for one file a tile: the files are opened, read whole and closed, by the native code."""
    load_operators(native.LIBRARY)
    batches = orders(range(len(source)), size)
    return lambda: native.read_only(source.files(source.indices[next(batches)], None), threads=1)


def copying(data: Any, size: int) -> Callable[[], Any]:
    """The floor for a pack: the same bytes of it, in their order there, copied into memory that was used before."""
    length = len(data.planes) * data.images.layout.image_bytes // data.images.layout.shape[0]
    pieces = cycle([piece for piece in torch.split(data.images.rows[0][:, :length], size) if len(piece) == size])
    target = torch.ones(size, length, dtype=torch.uint8)
    return lambda: target.copy_(next(pieces))


def orders(chosen: Sequence[int], size: int) -> Iterator[Indices]:
    """Batches of the chosen indices, permutation after permutation, without end; ``size`` may be greater."""
    generator = np.random.default_rng(0)
    drawn = (index for _ in count() for index in generator.permutation(chosen).tolist())
    for number in count():
        yield Indices(islice(drawn, size), split="train", epoch=number * size // len(chosen), number=number)
