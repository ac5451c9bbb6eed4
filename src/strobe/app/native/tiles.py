"""Tiles read in C++: each file is opened, read whole, checked and de-interleaved into its place in the batch."""

from collections.abc import Sequence

from torch import Tensor

from strobe.app.native.build import Library, operators
from strobe.app.native.files import Files, statuses

LIBRARY = Library(
    "tiles",
    ("tiles.cpp", "tiff.cpp", "pool.cpp"),
    serves="loader=native for tiles",
    fakes=(("strobe::read_tiles", statuses),),
)


def read_tiles(out: Tensor, files: Files, *, bands: Sequence[int], shape: Sequence[int], threads: int) -> Tensor:
    """Fill ``out`` (N, bands, H, W) uint16, contiguous, on the CPU, pinned or shared or not, with the tiles of N files.

    Reads uncompressed little-endian TIFFs of one page, pixel-interleaved, with consecutive strips. ``shape`` is that of
    each file (all its bands, H, W), of which ``bands`` are wanted, from 0, in this order. The caller is one of the
    ``threads``. It releases the GIL.

    Returns (N,) uint8: 0 where the tile was read, 1 where it is of another form or shape, damaged or missing, and its
    place in ``out`` holds anything. Raises a RuntimeError for other arguments, a DataError if the operators cannot be
    compiled, which says what to install.
    """
    status: Tensor = operators(LIBRARY).read_tiles(out, *files, bands, shape, threads)
    return status


def read_only(files: Files, *, threads: int) -> int:
    """Open, read and close files, and return their bytes: no loader of one file per image can be faster."""
    count: int = operators(LIBRARY).read_only(*files, threads)
    return count
