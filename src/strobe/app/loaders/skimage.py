"""Tiles by scikit-image, whose TIFF reader is tifffile behind imageio."""

import numpy as np
import tifffile
from numpy.typing import NDArray
from skimage import io

from strobe.app.loaders.base import TileLoader
from strobe.app.loaders.sources import TileSource
from strobe.app.loaders.tifffile import check_header, select_bands
from strobe.callbacks.spans import span


class SkimageLoader(TileLoader):
    """``skimage.io.imread(path)``."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (bands, H, W) of one file."""
        with span("read+decode", 1):  # of bytes it would choose another reader, which knows no 13 bands
            with tifffile.TiffFile(path) as tile:
                planar = check_header(path, tile, source)
            pixels = io.imread(path)
        return select_bands(pixels, source, planar=planar)
