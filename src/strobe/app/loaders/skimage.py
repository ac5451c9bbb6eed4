"""Tiles by scikit-image, whose TIFF reader is tifffile behind imageio."""

import numpy as np
from numpy.typing import NDArray
from skimage import io

from strobe.app.loaders.base import TileLoader, select_bands
from strobe.app.loaders.sources import TileSource
from strobe.callbacks.spans import span


class SkimageLoader(TileLoader):
    """``skimage.io.imread(path)``."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (bands, H, W) of one file."""
        with span("read+decode", 1):  # of bytes it would choose another reader, which knows no 13 bands
            pixels = io.imread(path)
        return select_bands(path, pixels, source)
