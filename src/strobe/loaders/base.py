"""What every loader has in common: what it reads from, and the data set it makes of that."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from callbacks.spans import span
from strobe.errors import DataError

Source = TypeVar("Source")
Batch = tuple[Tensor, Tensor]
"""Pixels (N, C, H, W) and labels (N,) int64."""


class PathTable(Sequence[str]):
    """Paths in one buffer.

    A list of Python strings grows each worker's memory: reading one changes its reference count, and
    copy-on-write then copies its page (pytorch#13246, pytorch#20433).
    """

    def __init__(self, paths: Sequence[str]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self._text = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([len(path) for path in encoded], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        index %= len(self)
        start = self._ends[index - 1] if index else 0
        return os.fsdecode(self._text[start : self._ends[index]].tobytes())


@dataclass(frozen=True)
class TileSource:
    """Tiles to read: one file each, all of one shape."""

    paths: PathTable
    labels: Tensor  # (N,) int64
    shape: tuple[int, int, int]  # bands in the file, height, width
    bands: tuple[int, ...]  # which of them, from 0, in this order
    full_scale: float  # the integer that becomes 1.0

    def require(self, path: str, found: tuple[int, ...], dtype: Any) -> None:
        """Raise a :class:`DataError` when a file has another shape than the first, or is not of uint16."""
        if dtype != "uint16":
            raise DataError(f"{path} has {dtype} pixels, but uint16 is needed; convert or remove the file")
        if found != self.shape:
            raise DataError(
                f"{path} has shape {_words(found)}, but {self.paths[0]} has {_words(self.shape)}; "
                "all tiles must agree: remove or convert the odd one"
            )


@dataclass(frozen=True)
class ArraySource:
    """Images held in memory, and which of them belong to this split."""

    images: Tensor  # (M, C, H, W) uint8
    targets: Tensor  # (M,) int64
    indices: Tensor  # (N,) int64 into the two above
    full_scale: float = 255.0

    @property
    def labels(self) -> Tensor:
        """Labels (N,) int64."""
        return self.targets[self.indices]


def _words(shape: tuple[int, ...]) -> str:
    if len(shape) != 3:
        return "x".join(map(str, shape))
    bands, height, width = shape
    return f"{bands} bands of {height}x{width}"


class Loader(ABC, Generic[Source]):
    """Turns a source into a data set of pixels and labels.

    ``scale`` says where integers become [0, 1]: later on the ``device``, or here, image by image,
    with ``numpy`` or with ``torch``.
    """

    def __init__(self, *, scale: str) -> None:
        self.scale = scale

    @abstractmethod
    def dataset(self, source: Source) -> "LoadedData":
        """A data set over the whole source, in its order."""

    def scaled(self, pixels: NDArray[Any], full_scale: float, images: int = 1) -> Tensor:
        """Integers as they are (``device``), or float32 in [0, 1], clipped above ``full_scale``."""
        if self.scale == "device":
            return torch.from_numpy(pixels)
        with span("scale", images):
            if self.scale == "numpy":
                return torch.tensor(np.clip(pixels / full_scale, 0, 1), dtype=torch.float32)
            return torch.from_numpy(pixels).float().div_(full_scale).clamp_(0, 1)


class LoadedData(Dataset[Batch]):
    """A map-style data set that says how its items become a batch."""

    collate: Callable[[Any], Batch] = staticmethod(default_collate)

    def __len__(self) -> int:
        raise NotImplementedError


class TileLoader(Loader[TileSource]):
    """A backend that reads one tile file at a time."""

    @abstractmethod
    def read(self, path: str, source: TileSource) -> NDArray[np.uint16]:
        """Pixels (len(source.bands), H, W) of one file; any exception means that it cannot be read."""

    def dataset(self, source: TileSource) -> LoadedData:
        """One item a file."""
        return TileData(self, source)


class TileData(LoadedData):
    """Tiles, read when they are asked for."""

    def __init__(self, loader: TileLoader, source: TileSource) -> None:
        self.loader = loader
        self.source = source

    def __len__(self) -> int:
        return len(self.source.paths)

    def __getitem__(self, index: int) -> Batch:
        path = self.source.paths[index]
        try:
            pixels = self.loader.read(path, self.source)
        except DataError:
            raise
        except Exception as error:
            raise unreadable(path, error) from error
        return self.loader.scaled(pixels, self.source.full_scale), self.source.labels[index]


def unreadable(path: str, error: Exception) -> DataError:
    """The error for a file that a decoder refused, whatever that decoder raised."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"{path} cannot be read as a tile ({reason}); replace or remove the file")


def select_bands(path: str, pixels: NDArray[Any], source: TileSource) -> NDArray[np.uint16]:
    """The wanted bands (bands, H, W) of pixel-interleaved pixels (H, W, bands in the file)."""
    source.require(path, (*pixels.shape[2:], *pixels.shape[:2]), pixels.dtype)
    return np.moveaxis(pixels[..., source.bands], -1, 0)
