"""Tiles by tifffile."""

from io import BytesIO
from math import prod
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from strobe.app.loaders.base import TileLoader
from strobe.app.loaders.sources import TileSource
from strobe.callbacks.spans import span


class TifffileLoader(TileLoader):
    """``tifffile.imread`` of a file's bytes, on one thread, because workers run in parallel.

    Reading the small file whole is a tenth faster than letting tifffile seek in it.
    """

    def of_bytes(self, path: str, content: bytes, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (bands, H, W) of a file's content."""
        with span("decode", 1), tifffile.TiffFile(BytesIO(content)) as tile:
            planar = check_header(path, tile, source)
            return select_bands(tile.asarray(maxworkers=1), source, planar=planar)


def check_header(path: str, tile: tifffile.TiffFile, source: TileSource) -> bool:
    """Whether a file holds its bands one after the other; raises as :meth:`TileSource.require`. Decodes nothing."""
    image = tile.series[0]
    sizes = dict(zip(image.axes, image.shape, strict=True))
    found = sizes.get("S", 1), sizes.get("Y", 1), sizes.get("X", 1)
    source.require(path, found, image.dtype, pages=prod(image.shape) // prod(found))
    return image.axes.startswith("S")


def select_bands(pixels: NDArray[Any], source: TileSource, *, planar: bool = False) -> NDArray[np.uint16]:
    """The wanted bands (bands, H, W) of pixels (H, W, bands of the file); ``planar``: of (bands of the file, H, W)."""
    return pixels[list(source.bands)] if planar else np.moveaxis(pixels[..., source.bands], -1, 0)
