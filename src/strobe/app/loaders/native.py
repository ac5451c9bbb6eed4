"""Tiles and photos by the project's own operators in C++, a whole batch in one call."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from strobe.app.loaders.base import Batch, BatchData, LoadedData, Loader
from strobe.app.loaders.fallback import Fallback
from strobe.app.loaders.sources import PhotoSource, TileSource
from strobe.app.loaders.threads import threads
from strobe.app.loaders.tifffile import TifffileLoader
from strobe.app.native import tiles
from strobe.app.native.build import load
from strobe.callbacks.spans import span

_OTHERS = (
    "are compressed, tiled, planar, big-endian, BigTIFF or of several pages: "
    "loader=native reads such files through tifffile, at tifffile's speed; rewrite them with: "
    "rio convert --co compress=none --co tiled=no --co interleave=pixel OLD.tif NEW.tif"
)


class NativeLoader(Loader[TileSource | PhotoSource]):
    """``threads`` read one batch; None: as many as torch computes on, one in a worker.

    ``dct_scaling`` lets libjpeg shrink a photo while it decodes, towards the size that is wanted.
    """

    def __init__(self, *, threads: int | None, dct_scaling: bool, **common: Any) -> None:
        super().__init__(**common)
        self.threads = threads
        self.dct_scaling = dct_scaling
        self.fallback = Fallback()

    def dataset(self, source: TileSource | PhotoSource) -> LoadedData:
        """A batch at a time.

        Raises:
            DataError: the operators cannot be compiled; says what to install.
        """
        if isinstance(source, PhotoSource):
            from strobe.app.loaders.native_photos import NativePhotos

            return NativePhotos(self, source)
        return NativeTiles(self, source)


class NativeTiles(BatchData):
    """Tiles, read when they are asked for.

    Those that the operator does not read (compressed, tiled, planar, big-endian, BigTIFF) go through tifffile.
    """

    def __init__(self, loader: NativeLoader, source: TileSource) -> None:
        super().__init__()
        load(tiles.LIBRARY)
        self.loader = loader
        self.source = source
        self.others = TifffileLoader(scale="device")

    def __len__(self) -> int:
        return len(self.source)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Pixels (N, bands, H, W) and labels (N,).

        Raises:
            DataError: a tile cannot be read, or does not fit the others; names it.
        """
        source, count = self.source, len(indices)
        files = source.indices[list(indices)]
        pixels = self.buffers.take((count, len(source.bands), *source.shape[1:]), torch.uint16)
        with span("read+decode", count):
            unread = tiles.read_tiles(
                pixels,
                source.paths,
                files,
                bands=source.bands,
                shape=source.shape,
                threads=self.loader.threads or threads(),
            )
        for place in unread.nonzero().flatten().tolist():
            pixels[place] = self.loader.fallback.read(source.paths[int(files[place])], "tile", self._other, _OTHERS)
        return self.loader.scaled(pixels, source.full_scale, count), source.targets[files]

    def _other(self, path: str) -> Tensor:
        return torch.from_numpy(self.others.pixels(path, self.source))
