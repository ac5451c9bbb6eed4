"""Tiles by tifffile."""

import numpy as np
import tifffile
from numpy.typing import NDArray

from strobe.loaders.base import TileLoader, TileSource, select_bands


class TifffileLoader(TileLoader):
    """``tifffile.imread(path)``, on one thread: workers are what runs in parallel."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (bands, H, W) of one file."""
        return select_bands(path, tifffile.imread(path, maxworkers=1), source)
