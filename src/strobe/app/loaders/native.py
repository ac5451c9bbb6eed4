"""Tiles and crops of photos by the project's own C++ operators, a whole batch in one call."""

import logging
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strobe.app.loaders.base import BatchData, FileLoader, LoadedData, Loader, Selection
from strobe.app.loaders.buffer_pool import shared
from strobe.app.loaders.photos import framed
from strobe.app.loaders.pil import PilLoader
from strobe.app.loaders.sources import MOST_PIXELS, PhotoSource, TileSource
from strobe.app.loaders.tifffile import TifffileLoader
from strobe.app.native import photos, tiles
from strobe.app.native.build import load
from strobe.app.native.files import Files
from strobe.app.storage.objects import part
from strobe.callbacks.spans import span

_log = logging.getLogger(__name__)

_OTHER_TILES = (
    "are compressed, tiled, planar, big-endian, BigTIFF or have several pages: "
    "loader=native reads such files through tifffile, at tifffile's speed; rewrite them with: "
    "rio convert --co compress=none --co tiled=no --co interleave=pixel OLD.tif NEW.tif"
)
_OTHER_PHOTOS = (
    "are not plain JPEG (another format, CMYK, slightly damaged): loader=native reads such files through Pillow, "
    "at Pillow's speed; convert them to RGB or grey JPEG"
)


class NativeLoader(Loader[TileSource | PhotoSource]):
    """``threads`` read one batch; None: as many as torch computes on, one in a worker.

    ``dct_scaling`` lets libjpeg shrink a photo towards the wanted size while it decodes.
    """

    def __init__(self, *, threads: int | None, dct_scaling: bool, **common: Any) -> None:
        super().__init__(**common)
        self.threads = threads
        self.dct_scaling = dct_scaling
        # In shared memory: otherwise each worker would warn, in each epoch. Two workers that meet their first
        # such file within a microsecond may both warn.
        self._warned = shared((1,), torch.bool).zero_()

    def dataset(self, source: TileSource | PhotoSource) -> LoadedData:
        """A data set of whole batches; without a compiler, raises a :class:`DataError` that says what to install."""
        return NativePhotos(self, source) if isinstance(source, PhotoSource) else NativeTiles(self, source)

    def warn(self, path: str, remedy: str) -> None:
        """Say once in a run that another loader reads a file, and what to do about it."""
        if not self._warned:
            self._warned.fill_(True)
            _log.warning("%s and possibly others %s", path, remedy)


class NativeData(BatchData):
    """Files, read on request, a whole batch in one call; another loader reads those that the operator does not."""

    loader: NativeLoader
    others: FileLoader[Any, Any]
    remedy: str

    @abstractmethod
    def operate(self, pixels: Tensor, selection: Selection, files: Files, threads: int) -> Tensor:
        """Read the images by the operators; which of them these did not read (N,)."""

    @abstractmethod
    def how(self, file: int, epoch: int) -> tuple[Any, ...]:
        """The other loader's arguments for file number ``file`` of the set, which give the same image."""

    def fill(self, pixels: Tensor, selection: Selection) -> None:
        """By the operators, then file by file what they did not read."""
        source, contents = self.source, selection.contents
        with span("read+decode" if contents is None else "decode", len(pixels)):
            files = source.files(selection.images, contents)
            unread = self.operate(pixels, selection, files, self.loader.threads or torch.get_num_threads())
        for place in unread.nonzero().flatten().tolist():
            file = int(selection.images[place])
            path, how = source.paths[file], self.how(file, selection.epoch)
            pixels[place] = torch.as_tensor(self.others.pixels(path, *how, content=part(contents, place)))
            self.loader.warn(path, self.remedy)


class NativeTiles(NativeData):
    """Tiles; tifffile reads the forms that the operator does not."""

    source: TileSource
    remedy = _OTHER_TILES
    dtype = torch.uint16

    def __init__(self, loader: NativeLoader, source: TileSource) -> None:
        super().__init__(loader, source)
        load(tiles.LIBRARY)
        self.others = TifffileLoader(scale="device")
        self.shape = (len(source.bands), *source.shape[1:])

    def operate(self, pixels: Tensor, selection: Selection, files: Files, threads: int) -> Tensor:
        """As :class:`NativeData` says."""
        source = self.source
        return tiles.read_tiles(pixels, files, bands=source.bands, shape=source.shape, threads=threads)

    def how(self, file: int, epoch: int) -> tuple[Any, ...]:
        """The bands."""
        return (self.source,)


class NativePhotos(NativeData):
    """Photos; Pillow reads those that the operators do not.

    Each photo's size is measured once, in whichever worker process, forked or spawned.
    """

    source: PhotoSource
    remedy = _OTHER_PHOTOS

    def __init__(self, loader: NativeLoader, source: PhotoSource) -> None:
        super().__init__(loader, source)
        load(photos.LIBRARY)
        self.varies = source.framing.varies
        self.others = PilLoader(scale="device")
        self.shape = (3, source.framing.size, source.framing.size)
        # Height and width; 0: unknown; -1: not for the operators. In memory that all workers share.
        self.sizes = shared((len(source), 2), torch.int32).zero_()

    def operate(self, pixels: Tensor, selection: Selection, files: Files, threads: int) -> Tensor:
        """A photo of unknown size gets an impossible box, and is left to Pillow."""
        known, at = self.sizes.numpy(), selection.places.numpy()
        sizes = known[at].astype(np.int64)
        unknown = (sizes == 0).any(axis=1)  # any: another process may have written a height but not yet the width
        if unknown.any():
            measured = _measured(files, torch.from_numpy(unknown), threads)
            fits = (measured > 0) & (measured.prod(axis=1, keepdims=True) <= MOST_PIXELS)  # Pillow names what is wrong
            sizes[unknown] = known[at[unknown]] = np.where(fits, measured, -1)
        sizes = np.maximum(sizes, 0)
        boxes = self.source.framing.boxes(sizes, selection.images.numpy(), selection.epoch)
        boxes[sizes[:, 0] == 0] = 0
        scaled = self.loader.dct_scaling
        return photos.read_photos(pixels, files, torch.from_numpy(boxes), scaled=scaled, threads=threads)

    def how(self, file: int, epoch: int) -> tuple[Any, ...]:
        """The same box and size."""
        return framed(self.source, file, epoch), self.source.framing.size


def _measured(files: Files, wanted: Tensor, threads: int) -> NDArray[np.int64]:
    """Height and width of the ``wanted`` photos (N,)."""
    if files.chosen is not None:
        return photos.measure_photos(files._replace(chosen=files.chosen[wanted]), threads=threads).numpy()
    return photos.measure_photos(files, threads=threads)[wanted].numpy()
