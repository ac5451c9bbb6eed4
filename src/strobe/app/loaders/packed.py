"""Images from one memory-mapped file, which is written on first use."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.app.config.schema import ONE_CROP
from strobe.app.loaders.base import BatchData, Loader, Selection
from strobe.app.loaders.packing import Contents, Layout, MappedImages, packed
from strobe.app.loaders.pil import PilLoader
from strobe.app.loaders.shards import Images, StreamedShards, open_shards
from strobe.app.loaders.sources import PathTable, PhotoSource, TileSource
from strobe.app.loaders.tifffile import TifffileLoader
from strobe.callbacks.spans import span
from strobe.errors import ConfigError


class PackedLoader(Loader[TileSource | PhotoSource]):
    """Packs the whole set into a file below ``directory`` on first use; from then on a batch is one gather of rows.

    A pack is rebuilt if a file was added, removed or changed; with ``verify``, which reads all of it, also if its
    checksum is wrong. A pack of tiles has all bands; those that were requested first are contiguous. Photos are packed
    as the squares that they become, so ``data.framing`` must be ``resize``.
    """

    def __init__(
        self, *, directory: str, verify: bool, shards: str | None = None, stream: bool = False, **common: Any
    ) -> None:
        super().__init__(**common)
        self.directory = directory
        self.verify = verify
        self.shards = shards
        self.stream = stream
        self.reach: dict[str, Any] = {"endpoint": None}  # of shards in storage, unless the files lie there too
        self._latest: tuple[PathTable, Images] | None = None

    def dataset(self, source: TileSource | PhotoSource) -> "PackedData":
        """A data set of whole batches; all splits share a table of paths, so files are checked once.

        Raises a DataError if a file cannot be read or differs from the others, or there is no room for the pack, a
        ConfigError if a photo's crop changes.
        """
        contents = contents_of(source)
        bands = source.bands if isinstance(source, TileSource) else (0, 1, 2)
        paths, images = self._latest or (None, None)
        if paths is not source.paths or images is None or not contents.layout.agrees(images.layout):
            images = self._images(contents)
            self._latest = source.paths, images
        return PackedData(self, source, images, bands)

    def _images(self, contents: Contents) -> Images:
        if self.shards is not None:
            reach = contents.objects.storage.reach if contents.objects else self.reach
            return open_shards(self.shards, reach, contents, Path(self.directory), stream=self.stream)
        path, manifest = packed(Path(self.directory), contents, verify=self.verify)
        count = manifest.sources.count
        return MappedImages(manifest.layout, count, [(path, count, 0)], "start again to rebuild the pack")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_latest": None}


class PackedData(BatchData):
    """Images of a pack, in the order of a split."""

    def __init__(
        self, loader: PackedLoader, source: TileSource | PhotoSource, images: Images, bands: Sequence[int]
    ) -> None:
        super().__init__(loader, replace(source, paths=PathTable(()), objects=None))  # which workers do not need
        self.images = images
        layout = images.layout
        self.planes = tuple(map(layout.bands.index, bands))
        self.shape, self.dtype = (len(bands), *layout.shape[1:]), layout.tensor_dtype

    @property
    def fetches(self) -> bool:
        """Whether its shards lie in storage."""
        return isinstance(self.images, StreamedShards)

    def fill(self, pixels: Tensor, selection: Selection) -> None:
        """One gather."""
        with span("read", len(pixels)):
            self.images.gather(selection.images, self.planes, pixels.view(torch.uint8).view(len(pixels), -1))


def contents_of(source: TileSource | PhotoSource) -> Contents:
    """The whole set of a source, as packs have it; raises as :func:`photos`."""
    return tiles(source) if isinstance(source, TileSource) else photos(source)


def _reading(source: TileSource | PhotoSource, loader: Any, *how: Any) -> Callable[[str], Any]:
    """Reads an image by its path; from storage, where that is an address."""
    if (objects := source.objects) is None:
        return lambda path: loader.pixels(path, *how)
    numbers = {path: number for number, path in enumerate(source.paths)}

    def read(path: str) -> Any:
        contents = objects.fetch([path], np.array([numbers[path]]))
        return loader.pixels(path, *how, content=contents[0])

    return read


def tiles(source: TileSource) -> Contents:
    """All tiles of the set, with all bands: those of the source first."""
    bands = (*source.bands, *(band for band in range(source.shape[0]) if band not in source.bands))
    whole = replace(source, bands=bands)
    loader = TifffileLoader(scale="device")
    layout = Layout("tiles", "<u2", source.shape, bands)
    return Contents(source.paths, layout, _reading(source, loader, whole), source.objects)


def photos(source: PhotoSource) -> Contents:
    """All photos of the set, each resized whole."""
    kind, size = source.framing.kind, source.framing.size
    if kind != "resize":
        raise ConfigError(ONE_CROP.format(choice="loader=packed", framing=kind))
    layout, loader = Layout(f"photos-{size}", "|u1", (3, size, size), (0, 1, 2)), PilLoader(scale="device")
    read = _reading(source, loader, lambda height, width: (0, 0, height, width), size)
    return Contents(source.paths, layout, lambda path: read(path).numpy(), source.objects)
