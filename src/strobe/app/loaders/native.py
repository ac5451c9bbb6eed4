"""Tiles and crops of photos by the project's own C++ operators, a whole batch in one call."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strobe.app.loaders.base import Batch, BatchData, LoadedData, Loader
from strobe.app.loaders.buffer_pool import shared_zeros
from strobe.app.loaders.crop_policy import Boxes
from strobe.app.loaders.photos import framed
from strobe.app.loaders.pil import PilLoader
from strobe.app.loaders.sources import MOST_PIXELS, PhotoSource, TileSource
from strobe.app.loaders.threads import threads
from strobe.app.loaders.tifffile import TifffileLoader
from strobe.app.native import photos as native_photos
from strobe.app.native import tiles as native_tiles
from strobe.app.native.build import load
from strobe.app.storage.objects import Contents, part
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
        self._warned = shared_zeros((1,), torch.bool)

    def dataset(self, source: TileSource | PhotoSource) -> LoadedData:
        """A data set of whole batches; without a compiler, raises a :class:`DataError` that says what to install."""
        return NativePhotos(self, source) if isinstance(source, PhotoSource) else NativeTiles(self, source)

    def by_another(self, path: str, read: Callable[[str], Any], remedy: str) -> Any:
        """Read a file that the operators cannot read with another loader; warns once per run."""
        pixels = read(path)
        if not self._warned:
            self._warned.fill_(True)
            _log.warning("%s and possibly others %s", path, remedy)
        return pixels


class NativeTiles(BatchData):
    """Tiles, read on request; tifffile reads the forms that the operator does not."""

    loader: NativeLoader
    source: TileSource

    def __init__(self, loader: NativeLoader, source: TileSource) -> None:
        super().__init__(loader, source)
        load(native_tiles.LIBRARY)
        self.others = TifffileLoader(scale="device")

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Pixels (N, bands, H, W) and labels (N,)."""
        source, count = self.source, len(indices)
        files = source.indices[list(indices)]
        pixels = self.buffers.take((count, len(source.bands), *source.shape[1:]), torch.uint16)
        number = self.loader.threads or threads()
        contents = source.fetch(files)
        form: dict[str, Any] = {"bands": source.bands, "shape": source.shape, "threads": number}
        with span("read+decode" if contents is None else "decode", count):
            if contents is None:
                unread = native_tiles.read_tiles(pixels, source.paths, files, **form)
            else:
                unread = native_tiles.decode_tiles(pixels, contents.data, contents.ends, **form)
        for place in unread.nonzero().flatten().tolist():
            path, content = source.paths[int(files[place])], part(contents, place)
            pixels[place] = self.loader.by_another(path, partial(self._other, content=content), _OTHER_TILES)
        return self.loader.scaled(pixels, source.full_scale, count), source.targets[files]

    def _other(self, path: str, content: bytes | None) -> Tensor:
        return torch.from_numpy(self.others.pixels(path, self.source, content=content))


class NativePhotos(BatchData):
    """Photos, read on request; Pillow reads those that the operators do not.

    Each photo's size is measured once, in whichever worker process, forked or spawned.
    """

    loader: NativeLoader
    source: PhotoSource

    def __init__(self, loader: NativeLoader, source: PhotoSource) -> None:
        super().__init__(loader, source)
        load(native_photos.LIBRARY)
        self.varies = source.framing.varies
        self.others = PilLoader(scale="device")
        # Height and width; 0: unknown; -1: not for the operators. In memory that all workers share.
        self.sizes = shared_zeros((len(source), 2), torch.int32)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Pixels (N, 3, size, size) uint8 and labels (N,)."""
        source, size, count = self.source, self.source.framing.size, len(indices)
        places = torch.tensor(list(indices))
        files = source.indices[places]
        epoch = getattr(indices, "epoch", 0)
        pixels = self.buffers.take((count, 3, size, size), torch.uint8)
        number = self.loader.threads or threads()
        contents = source.fetch(files)
        how: dict[str, Any] = {"scaled": self.loader.dct_scaling, "threads": number}
        with span("read+decode" if contents is None else "decode", count):
            boxes = torch.from_numpy(self._boxes(places.numpy(), files, epoch, number, contents))
            if contents is None:
                unread = native_photos.read_photos(pixels, source.paths, files, boxes, **how)
            else:
                unread = native_photos.decode_photos(pixels, contents.data, contents.ends, boxes, **how)
        for place in unread.nonzero().flatten().tolist():
            pixels[place] = self._other(int(files[place]), epoch, part(contents, place))
        return self.loader.scaled(pixels, source.full_scale, count), source.targets[files]

    def _boxes(
        self, places: NDArray[np.int64], files: Tensor, epoch: int, number: int, contents: Contents | None
    ) -> Boxes:
        """The box (N, 4) of each photo; an impossible one for photos that Pillow reads."""
        known = self.sizes.numpy()
        sizes = known[places].astype(np.int64)
        unknown = (sizes == 0).any(axis=1)  # any: another process may have written a height but not yet the width
        if unknown.any():
            if contents is None:
                found = native_photos.measure_photos(self.source.paths, files[unknown], threads=number).numpy()
            else:
                found = native_photos.measure_contents(contents.data, contents.ends, threads=number).numpy()[unknown]
            fits = (found > 0) & (found.prod(axis=1, keepdims=True) <= MOST_PIXELS)  # to others Pillow says why not
            sizes[unknown] = known[places[unknown]] = np.where(fits, found, -1)
        sizes = np.maximum(sizes, 0)
        boxes = self.source.framing.boxes(sizes, files.numpy(), epoch)
        boxes[sizes[:, 0] == 0] = 0
        return boxes

    def _other(self, photo: int, epoch: int, content: bytes | None) -> Any:
        frame, size = framed(self.source, photo, epoch), self.source.framing.size
        path = self.source.paths[photo]
        return self.loader.by_another(
            path, lambda path: self.others.pixels(path, frame, size, content=content), _OTHER_PHOTOS
        )
