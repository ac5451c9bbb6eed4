"""Tiles by rasterio, which is GDAL: reads only the wanted bands, opens slowly."""

import warnings

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning

from strobe.loaders.base import TileLoader, TileSource


class RasterioLoader(TileLoader):
    """``rasterio.open(path).read(bands)``, as the source comparison's first variant."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (bands, H, W) of one file."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with rasterio.open(path) as tile:
                source.require(path, (tile.count, tile.height, tile.width), tile.dtypes[0])
                pixels: NDArray[np.uint16] = tile.read([band + 1 for band in source.bands])
        return pixels
