"""What loaders read from: files, or images in memory, and which of them belong to a split."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.app.loaders.crop_policy import CropPolicy
from strobe.app.native.files import Files
from strobe.app.storage.folder import Objects
from strobe.app.storage.objects import Contents
from strobe.callbacks.spans import span
from strobe.errors import DataError

MOST_HEADERS = 32  # of photos, read to find their usual size
MOST_PIXELS = (1 << 28) // 3  # of an image, whichever loader reads it: Pillow's own limit, 256 MiB in colours
TOO_LARGE = f"it has more than {MOST_PIXELS:,} pixels, the most that are decoded"


class PathTable(Sequence[str]):
    """Paths in one buffer: ``text`` (bytes,) uint8, and ``ends`` (M,) int64, where each path ends in it.

    A list of Python strings grows each worker's memory: reading one changes its reference count, and
    copy-on-write then copies its page (pytorch#13246, pytorch#20433). Tensors are also shared with workers that
    do not start as a copy of this process. Where a ``folder`` is given, it comes before each path.
    """

    def __init__(self, paths: Sequence[str], folder: str = "") -> None:
        before = f"\0{folder}/" if folder else "\0"
        text = np.frombuffer(os.fsencode(before.join(["", *paths])), dtype=np.uint8)
        begins = np.flatnonzero(text == 0)  # of each path, as long as the zeros are there
        self.text = torch.from_numpy(text[text != 0])
        self.ends = torch.from_numpy(np.append(begins, len(text))[1:] - np.arange(1, len(begins) + 1))

    @classmethod
    def joined(cls, tables: Sequence["PathTable"]) -> "PathTable":
        """One table's paths after the other's."""
        whole = cls(())
        starts = np.cumsum([0, *(len(table.text) for table in tables)])
        ends = [table.ends.numpy() + start for table, start in zip(tables, starts, strict=False)]
        whole.text = torch.from_numpy(np.concatenate([table.text.numpy() for table in tables]))
        whole.ends = torch.from_numpy(np.concatenate(ends))
        return whole

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        index %= len(self)
        ends = self.ends.numpy()
        start = ends[index - 1] if index else 0
        return os.fsdecode(self.text.numpy()[start : ends[index]].tobytes())


class Source(ABC):
    """A split of a set of M images."""

    targets: Tensor  # (M,) int64
    indices: Tensor  # (N,) int64, which of the set belong to this split

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def labels(self) -> Tensor:
        """Labels (N,) int64."""
        return self.targets[self.indices]

    def fetch(self, images: Tensor, *, cached: bool = True) -> Contents | None:
        """The contents of the files of these images (N,) of the set; None where they need not be fetched."""
        return None

    @abstractmethod
    def stored_size(self) -> tuple[int, int]:
        """Height and width of a typical image, as stored."""

    def given_size(self) -> tuple[int, int]:
        """Height and width of each image as the network gets it."""
        return self.stored_size()


@dataclass(frozen=True)
class FileSource(Source):
    """Files, one image each."""

    paths: PathTable  # M, of the whole set
    targets: Tensor
    indices: Tensor
    objects: Objects | None = field(default=None, kw_only=True)  # where the paths are addresses in storage

    def fetch(self, images: Tensor, *, cached: bool = True) -> Contents | None:
        """The contents of the files of these images (N,), all requested at once; None where they lie on the disk."""
        if self.objects is None:
            return None
        numbers = images.numpy()
        with span("fetch", len(numbers)):
            return self.objects.fetch([self.paths[number] for number in numbers.tolist()], numbers, cached=cached)

    def files(self, chosen: Tensor, contents: Contents | None) -> Files:
        """The same files as the native operators take them, with what :meth:`fetch` gave."""
        if contents is None:
            return Files(self.paths.text, self.paths.ends, chosen)
        return Files(contents.data, contents.ends)

    def path(self, index: int) -> str:
        """The file of the split's image ``index``."""
        path: str = self.paths[int(self.indices[index])]
        return path


@dataclass(frozen=True)
class TileSource(FileSource):
    """Tiles, all of one shape."""

    shape: tuple[int, int, int]  # bands in the file, height, width
    bands: tuple[int, ...]  # which of them, from 0, in this order
    full_scale: float  # the integer that becomes 1.0

    def stored_size(self) -> tuple[int, int]:
        """Height and width of each tile."""
        return self.shape[1:]

    def require(self, path: str, found: tuple[int, int, int], dtype: Any, *, pages: int = 1) -> None:
        """Raise a :class:`DataError` if a file is not uint16 or has another shape than the first one.

        A loader calls this before it decodes: a small file can claim to be a huge image.
        """
        if dtype != "uint16":
            raise DataError(f"{path} has {dtype} pixels, but tiles must be uint16; convert or remove the file")
        if found != self.shape or pages != 1:
            here, there = (f"{bands} band{'s'[: bands != 1]} of {h}x{w}" for bands, h, w in (found, self.shape))
            raise DataError(
                f"{path} has {f'{pages} pages of ' * (pages != 1)}{here}, but {self.paths[0]} has {there}; "
                "all tiles must have the same shape: convert or remove the odd one"
            )


@dataclass(frozen=True)
class PhotoSource(FileSource):
    """Photos of any size, which become squares in colour, uint8."""

    framing: CropPolicy
    full_scale: float = 255.0

    def given_size(self) -> tuple[int, int]:
        """Height and width of the squares."""
        return self.framing.size, self.framing.size

    def stored_size(self) -> tuple[int, int]:
        """The median size of a sample of the photos, from their headers; an OSError if none of them can be read."""
        from PIL import Image

        sizes = []
        files = self.indices[:: -(-len(self) // MOST_HEADERS)]
        contents = self.fetch(files)
        for place, file in enumerate(files.tolist()):
            with (
                suppress(OSError, Image.DecompressionBombError, Image.DecompressionBombWarning),
                Image.open(self.paths[file] if contents is None else BytesIO(contents[place])) as photo,
            ):
                sizes.append((photo.height, photo.width))
        if not sizes:
            raise OSError("no photo can be read")
        height, width = np.median(sizes, axis=0)
        return int(height), int(width)


@dataclass(frozen=True)
class ArraySource(Source):
    """Images held in memory."""

    images: Tensor  # (M, C, H, W) uint8
    targets: Tensor
    indices: Tensor
    full_scale: float = 255.0

    def stored_size(self) -> tuple[int, int]:
        """Height and width of each image."""
        return self.images.shape[2], self.images.shape[3]
