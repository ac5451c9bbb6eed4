"""Tiles read in C++: each file is opened, read whole, checked and de-interleaved into its place in the batch."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from strobe.app.native.build import Library, operators


class Paths(Protocol):
    """Paths in one buffer, as a ``strobe.app.loaders.sources.PathTable`` holds them."""

    text: Tensor  # uint8
    ends: Tensor  # (M,) int64: where each path ends in it


def _statuses(out: Tensor, *_: object) -> Tensor:
    return out.new_empty(out.shape[:1], dtype=torch.uint8)


LIBRARY = Library(
    "tiles",
    ("tiles.cpp", "tiff.cpp", "pool.cpp"),
    serves="loader=native for tiles",
    fakes=(("strobe::read_tiles", _statuses), ("strobe::decode_tiles", _statuses)),
)


def tensors(paths: Paths) -> tuple[Tensor, Tensor]:
    """Paths as the operators take them."""
    return paths.text, paths.ends


def read_tiles(
    out: Tensor, paths: Paths, files: Tensor, *, bands: Sequence[int], shape: Sequence[int], threads: int
) -> Tensor:
    """Fill ``out`` with one tile per file; releases the GIL.

    Reads uncompressed little-endian TIFFs of one page, pixel-interleaved, with consecutive strips.

    Args:
        out: (N, len(bands), H, W) uint16, contiguous, on the CPU; its memory may be pinned or shared.
        paths: M files.
        files: (N,) int64 into ``paths``.
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
    status: Tensor = operators(LIBRARY).read_tiles(out, *tensors(paths), files, bands, shape, threads)
    return status


def decode_tiles(
    out: Tensor, data: Tensor, ends: Tensor, *, bands: Sequence[int], shape: Sequence[int], threads: int
) -> Tensor:
    """As :func:`read_tiles`, of the contents of N files: ``data`` (B,) uint8, where file i ends at ``ends`` (N,)."""
    status: Tensor = operators(LIBRARY).decode_tiles(out, data, ends, bands, shape, threads)
    return status


def read_only(paths: Paths, files: Tensor, *, threads: int) -> int:
    """Open, read and close the files, and return their bytes: no loader of one file per image can be faster."""
    count: int = operators(LIBRARY).read_only(*tensors(paths), files, threads)
    return count
