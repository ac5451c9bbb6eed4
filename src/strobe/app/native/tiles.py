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
    """Fill ``out`` with one tile per file; releases the GIL.

    Reads uncompressed little-endian TIFFs of one page, pixel-interleaved, with consecutive strips.

    Args:
        out: (N, len(bands), H, W) uint16, contiguous, on the CPU; its memory may be pinned or shared.
        files: N of them.
        bands: which bands, from 0, in this order.
        shape: bands in each file, H, W.
        threads: on how many, the caller's among them.

    Returns:
        (N,) uint8: 0 where the tile was read, 1 where it is of another form or shape, damaged or missing, and its
        place in ``out`` holds anything.

    Raises:
        RuntimeError: an argument is not as above.
        DataError: the operators cannot be compiled; says what to install.
    """
    status: Tensor = operators(LIBRARY).read_tiles(out, *files, bands, shape, threads)
    return status


def read_only(files: Files, *, threads: int) -> int:
    """Open, read and close files, and return their bytes: no loader of one file per image can be faster."""
    count: int = operators(LIBRARY).read_only(*files, threads)
    return count
