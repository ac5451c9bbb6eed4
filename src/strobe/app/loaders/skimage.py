"""Tiles by scikit-image, whose TIFF reader is tifffile behind imageio."""

from pathlib import Path
from struct import error, unpack, unpack_from

import numpy as np
import tifffile
from numpy.typing import NDArray
from skimage import io

from strobe.app.loaders.base import TileLoader
from strobe.app.loaders.sources import TileSource
from strobe.app.loaders.tifffile import check_header, select_bands
from strobe.callbacks.spans import span

ORDERS = {b"II*\0": "<", b"MM\0*": ">"}  # of bytes, by how a file begins (TIFF 6.0, section 2)
NUMBERS = {3: "H2x", 4: "I"}  # by an entry's type: SHORT, LONG
TAGS = (277, 257, 256, 284)  # samples a pixel, height, width, planes
HEADER = 1 << 12  # bytes


class SkimageLoader(TileLoader):
    """``skimage.io.imread(path)``."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (bands, H, W) of one file."""
        planar = False
        with span("read+decode", 1):  # of bytes it would choose another reader, which knows no 13 bands
            if not _states(path, source.shape):
                with tifffile.TiffFile(path) as tile:
                    planar = check_header(path, tile, source)
            pixels = io.imread(path)
        source.require(path, source.shape, pixels.dtype)
        return select_bands(pixels, source, planar=planar)


def _states(path: str, shape: tuple[int, int, int]) -> bool:
    """Whether a file begins as a TIFF of one page of this shape, pixel by pixel; tifffile takes 20 times as long."""
    with Path(path).open("rb", buffering=0) as file:
        head = file.read(HEADER)
    order = ORDERS.get(head[:4])
    if order is None:
        return False
    try:
        (start,) = unpack_from(f"{order}I", head, 4)
        (count,) = unpack_from(f"{order}H", head, start)
        entries = [unpack_from(f"{order}HHI4s", head, start + 2 + 12 * place) for place in range(count)]
        (next_page,) = unpack_from(f"{order}I", head, start + 2 + 12 * count)
    except error:  # it goes on behind the head
        return False
    stated = {tag: unpack(order + NUMBERS[kind], value) for tag, kind, number, value in entries if kind in NUMBERS}
    return not next_page and [stated.get(tag) for tag in TAGS] == [(number,) for number in (*shape, 1)]
