"""Tiles by rasterio (GDAL), which reads only the bands that are asked for, but opens files slowly."""

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning

from strobe.app.loaders.base import TileLoader
from strobe.app.loaders.sources import TileSource
from strobe.callbacks.spans import span

_quiet = threading.Lock()  # warnings are ignored in the whole process


class RasterioLoader(TileLoader):
    """``rasterio.open(path).read(bands)``."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (bands, H, W) of one file."""
        return self._pixels(path, lambda: rasterio.open(path), source)

    def of_bytes(self, path: str, content: bytes, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (bands, H, W) of a file's content."""
        with rasterio.MemoryFile(content) as memory:
            return self._pixels(path, memory.open, source)

    def _pixels(self, path: str, opened: Callable[[], Any], source: TileSource) -> NDArray[np.uint16]:
        with span("open", 1), _quiet, warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            tile = opened()
        with tile:
            found, pages = (tile.count, tile.height, tile.width), len(tile.subdatasets) or 1
            source.require(path, found, tile.dtypes[0], pages=pages)
            with span("read+decode", 1):  # GDAL reads pixels from the disk while it decodes
                pixels: NDArray[np.uint16] = tile.read([band + 1 for band in source.bands])
        return pixels
