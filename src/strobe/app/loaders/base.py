"""What all loaders share: they turn a source into a data set."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from strobe.app.loaders.buffer_pool import BufferPool
from strobe.app.loaders.sources import TileSource
from strobe.app.storage.objects import Contents, part
from strobe.callbacks.spans import span
from strobe.errors import DataError

UNREADABLE = "cannot be read as a"  # in the message of each file that cannot
Source = TypeVar("Source")
Pixels = TypeVar("Pixels")
Batch = tuple[Tensor, Tensor]
"""Pixels (N, C, H, W) and labels (N,) int64."""


class Loader(ABC, Generic[Source]):
    """Turns a source into a data set of pixels and labels.

    ``scale`` says where integers become floats in [0, 1]: later on the ``device``, or here, image by image, with
    ``numpy`` or ``torch``.
    """

    def __init__(self, *, scale: str) -> None:
        self.scale = scale

    @abstractmethod
    def dataset(self, source: Source) -> "LoadedData":
        """A data set of the whole source, in its order."""

    def scaled(self, pixels: Tensor, full_scale: float, images: int = 1) -> Tensor:
        """Integers as they are (``device``), or float32 in [0, 1], clipped above ``full_scale``."""
        if self.scale == "device":
            return pixels
        with span("scale", images):
            if self.scale == "numpy":
                return torch.tensor(np.clip(pixels.numpy() / full_scale, 0, 1), dtype=torch.float32)
            return pixels.float().div_(full_scale).clamp_(0, 1)


class LoadedData(Dataset[Batch]):
    """A map-style data set with its own ``collate``; see also :class:`BatchData`."""

    collate: Callable[[Any], Batch] = staticmethod(default_collate)
    varies = False  # whether an image's pixels change from epoch to epoch

    def __init__(self, loader: Any, source: Any) -> None:
        self.loader = loader
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    @property
    def fetches(self) -> bool:
        """Whether batches come from storage, whose client cannot be used after a fork."""
        return getattr(self.source, "objects", None) is not None


class Selection(NamedTuple):
    """The images of one batch."""

    places: Tensor  # (N,) int64, in the split
    images: Tensor  # (N,) int64, in the set
    epoch: int
    contents: Contents | None  # of their files, where these lie in storage


class BatchData(LoadedData, ABC):
    """A data set that makes whole batches."""

    shape: tuple[int, ...]  # of an image
    dtype = torch.uint8

    def __init__(self, loader: Any, source: Any) -> None:
        super().__init__(loader, source)
        self.buffers = BufferPool()  # batches are made in these

    @abstractmethod
    def fill(self, pixels: Tensor, selection: Selection) -> None:
        """Write the selected images into ``pixels`` (N, C, H, W), which holds anything before."""

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """One batch; ``indices`` are usually ``strobe.app.engines.sampler.Indices``."""
        source, count = self.source, len(indices)
        places = torch.from_numpy(np.fromiter(indices, np.int64, count))
        images = source.indices[places]
        pixels = self.buffers.take((count, *self.shape), self.dtype)
        self.fill(pixels, Selection(places, images, getattr(indices, "epoch", 0), source.fetch(images)))
        return self.loader.scaled(pixels, source.full_scale, count), source.targets[images]

    def __getitem__(self, index: int) -> Batch:
        pixels, labels = self.__getitems__([index])
        return pixels[0], labels[0]

    @staticmethod
    def collate(batch: Batch) -> Batch:
        """Return the batch as it is."""
        return batch


class FileLoader(Loader[Source], Generic[Source, Pixels]):
    """A backend that reads one file at a time."""

    kind: str  # of file, for messages

    def read(self, path: str, *how: Any) -> Pixels:
        """Pixels of one file; any exception means that it cannot be read."""
        with span("read", 1):
            content = Path(path).read_bytes()
        return self.of_bytes(path, content, *how)

    def of_bytes(self, path: str, content: bytes, *how: Any) -> Pixels:
        """Pixels of a file's content; only of a loader that also reads from storage (``objects: true`` in its YAML)."""
        raise NotImplementedError

    def pixels(self, path: str, *how: Any, content: bytes | None = None) -> Pixels:
        """As :meth:`read` or, of what storage gave, :meth:`of_bytes`; a :class:`DataError` names an unreadable file."""
        try:
            return self.read(path, *how) if content is None else self.of_bytes(path, content, *how)
        except DataError:
            raise
        except Exception as error:
            raise unreadable(path, self.kind, error) from error


class TileLoader(FileLoader[TileSource, NDArray[np.uint16]]):
    """A backend whose ``read(path, source)`` gives the pixels (len(source.bands), H, W) uint16 of a tile."""

    kind = "tile"

    def dataset(self, source: TileSource) -> LoadedData:
        """One item a file."""
        return TileData(self, source)


class TileData(LoadedData):
    """Tiles, read on request."""

    loader: TileLoader
    source: TileSource

    def __init__(self, loader: TileLoader, source: TileSource) -> None:
        super().__init__(loader, source)
        self.labels = source.labels

    def __getitem__(self, index: int) -> Batch:
        return self._item(index, part(self.source.fetch(self.source.indices[[index]]), 0))

    def __getitems__(self, indices: Sequence[int]) -> list[Batch]:
        """One item a tile; those in storage are asked for together."""
        if self.source.objects is None:
            return [self[index] for index in indices]
        contents = self.source.fetch(self.source.indices[list(indices)])
        return [self._item(index, part(contents, place)) for place, index in enumerate(indices)]

    def _item(self, index: int, content: bytes | None) -> Batch:
        pixels = torch.from_numpy(self.loader.pixels(self.source.path(index), self.source, content=content))
        return self.loader.scaled(pixels, self.source.full_scale), self.labels[index]


def unreadable(path: str, kind: str, error: Exception) -> DataError:
    """The error for a file that a decoder could not read; ``kind``: tile or photo."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"{path} {UNREADABLE} {kind} ({reason}); replace or remove the file")
