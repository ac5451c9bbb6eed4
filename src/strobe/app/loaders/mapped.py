"""A file of pixels as memory, of which the system reads what is asked for."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.app.loaders.manifest import Layout
from strobe.errors import DataError


class MappedImages:
    """Images of one shape in a file, mapped read-only: the processes of a machine share one copy of it.

    A copy in another process maps the file again.
    """

    def __init__(self, path: Path, layout: Layout, count: int) -> None:
        """Map ``count`` images; raises a :class:`DataError` when the file is not there, or too short."""
        self.path = path
        self.layout = layout
        self.count = count
        self.dtype = {"<u2": torch.uint16, "|u1": torch.uint8}[layout.dtype]
        self.rows = _map(path, count, layout.image_bytes)  # (count, bytes of an image) uint8

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedImages, (self.path, self.layout, self.count)


class MappedPlanes:
    """Some planes of mapped images, in any order."""

    def __init__(self, images: MappedImages, planes: Sequence[int]) -> None:
        self.images = images
        self.planes = tuple(planes)
        self.shape = (len(planes), *images.layout.shape[1:])  # of one image
        self.dtype = images.dtype
        first, count, length = planes[0], len(planes), images.layout.image_bytes // images.layout.shape[0]
        if self.planes == tuple(range(first, first + count)):  # side by side: one piece an image
            self._pieces = images.rows[:, first * length : (first + count) * length]
            self._offsets = None
        else:
            self._pieces = images.rows.view(-1, length)
            self._offsets = torch.tensor(planes)

    def gather(self, chosen: Tensor, out: Tensor) -> None:
        """Copy images, on torch's threads.

        Args:
            chosen: (N,) int64, which images.
            out: (N, C, H, W), contiguous, of this pack's ``dtype``.
        """
        if self._offsets is not None:
            chosen = (chosen[:, None] * self.images.layout.shape[0] + self._offsets).view(-1)
        torch.index_select(self._pieces, 0, chosen, out=out.view(torch.uint8).view(len(chosen), -1))

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedPlanes, (self.images, self.planes)


def _map(path: Path, count: int, length: int) -> Tensor:
    """Bytes (count, length). Torch's own mapping is private and writable, which Linux refuses beyond its memory."""
    try:
        mapped = np.memmap(path, np.uint8, mode="r", shape=(count, length))
    except (OSError, ValueError) as error:
        raise DataError(f"The pack {path} cannot be mapped ({error}); start again, to pack the set anew") from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing writes
        return torch.from_numpy(mapped)
