"""Tiles by scikit-image, whose TIFF reader is tifffile behind imageio."""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from struct import error, unpack, unpack_from
from typing import Any

import imageio.v3 as iio
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
    """``skimage.io.imread(path)``; of bytes the same reader without scikit-image, which would choose another one."""

    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (bands, H, W) of one file."""
        with span("read+decode", 1):
            with Path(path).open("rb", buffering=0) as file:
                head = file.read(HEADER)
            return _pixels(path, head, source, path, io.imread)

    def of_bytes(self, path: str, content: bytes, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (bands, H, W) of a file's content."""
        with span("decode", 1):
            return _pixels(path, content[:HEADER], source, BytesIO(content), partial(iio.imread, extension=".tif"))


def _pixels(
    path: str, head: bytes, source: TileSource, tile: str | BytesIO, read: Callable[[str | BytesIO], Any]
) -> NDArray[np.uint16]:
    planar = False
    if not _states(head, source.shape):
        with tifffile.TiffFile(tile) as opened:
            planar = check_header(path, opened, source)
    if isinstance(tile, BytesIO):
        tile.seek(0)
    pixels = read(tile)
    source.require(path, source.shape, pixels.dtype)
    return select_bands(pixels, source, planar=planar)


def _states(head: bytes, shape: tuple[int, int, int]) -> bool:
    """Whether a file begins as a TIFF of one page of this shape, pixel by pixel; tifffile takes 20 times as long."""
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
