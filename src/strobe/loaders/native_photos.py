"""Photos by the project's own operators in C++: of each photo only what is wanted of it, a whole batch in one call."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from callbacks.spans import span
from strobe.loaders.base import Batch, BatchData, unreadable
from strobe.loaders.framing import Boxes
from strobe.loaders.photos import framed
from strobe.loaders.pil import PilLoader
from strobe.loaders.sources import PhotoSource
from strobe.loaders.threads import threads
from strobe.native import photos
from strobe.native.build import load

_log = logging.getLogger(__name__)
_said = threading.Event()


class Options(Protocol):
    """What :class:`strobe.loaders.native.NativeLoader` says of photos."""

    threads: int | None
    dct_scaling: bool

    def scaled(self, pixels: Tensor, full_scale: float, images: int = 1) -> Tensor:
        """See :meth:`strobe.loaders.base.Loader.scaled`."""


class NativePhotos(BatchData):
    """Photos, read when they are asked for.

    Those that the operators do not read (other formats than JPEG, CMYK) go through Pillow. Sizes are measured once.
    """

    def __init__(self, loader: Options, source: PhotoSource) -> None:
        super().__init__()
        load(photos.LIBRARY)
        self.loader = loader
        self.source = source
        self.varies = source.framing.varies
        self.others = PilLoader(scale="device")
        # Height and width; 0: not known; -1: not for the operators.
        self.sizes = np.zeros((len(source.paths), 2), dtype=np.int32)

    def __len__(self) -> int:
        return len(self.source)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Pixels (N, 3, size, size) uint8 and labels (N,).

        Raises:
            DataError: a photo cannot be read; names it.
        """
        source, size, count = self.source, self.source.framing.size, len(indices)
        files = source.indices[list(indices)]
        epoch = getattr(indices, "epoch", 0)
        pixels = self.buffers.take((count, 3, size, size), torch.uint8)
        with span("read+decode", count):
            unread = photos.read_photos(
                pixels,
                source.paths,
                files,
                torch.from_numpy(self._boxes(files, epoch)),
                scaled=self.loader.dct_scaling,
                threads=self.loader.threads or threads(),
            )
        for place in unread.nonzero().flatten().tolist():
            self._read_other(int(files[place]), epoch, pixels[place])
        return self.loader.scaled(pixels, source.full_scale, count), source.targets[files]

    def _boxes(self, files: Tensor, epoch: int) -> Boxes:
        """The box (N, 4) of each photo; of one that is not to be read here, a box that no photo has."""
        chosen = files.numpy()
        unknown = chosen[self.sizes[chosen, 0] == 0]
        if len(unknown):
            number = self.loader.threads or threads()
            found = photos.measure_photos(self.source.paths, torch.from_numpy(unknown), threads=number).numpy()
            self.sizes[unknown] = np.where(found > 0, found, -1)
        sizes = np.maximum(self.sizes[chosen], 0).astype(np.int64)
        boxes = self.source.framing.boxes(sizes, chosen, epoch)
        boxes[sizes[:, 0] == 0] = 0
        return boxes

    def _read_other(self, photo: int, epoch: int, pixels: Tensor) -> None:
        path: str = self.source.paths[photo]
        if Path(path).exists() and not Path(path).is_file():  # a pipe would be waited for
            raise unreadable(path, "photo", OSError("not a regular file"))
        pixels.copy_(self.others.pixels(path, framed(self.source, photo, epoch), self.source.framing.size))
        if not _said.is_set():
            _said.set()
            _log.warning(
                "%s and maybe others are no plain JPEG (another format, CMYK, slightly damaged): loader=native reads "
                "such files through Pillow, at Pillow's speed; convert them to JPEG of RGB or grey",
                path,
            )
