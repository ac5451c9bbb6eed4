"""Photos by the project's own operators in C++: of each photo only what is wanted of it, a whole batch in one call."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strobe.app.loaders.base import Batch, BatchData
from strobe.app.loaders.buffer_pool import shared_zeros
from strobe.app.loaders.crop_policy import Boxes
from strobe.app.loaders.fallback import Fallback
from strobe.app.loaders.photos import framed
from strobe.app.loaders.pil import PilLoader
from strobe.app.loaders.sources import PhotoSource
from strobe.app.loaders.threads import threads
from strobe.app.native import photos
from strobe.app.native.build import load
from strobe.callbacks.spans import span

_OTHERS = (
    "are no plain JPEG (another format, CMYK, slightly damaged): loader=native reads such files through Pillow, "
    "at Pillow's speed; convert them to JPEG of RGB or grey"
)


class Options(Protocol):
    """What :class:`strobe.app.loaders.native.NativeLoader` says of photos."""

    threads: int | None
    dct_scaling: bool
    fallback: Fallback

    def scaled(self, pixels: Tensor, full_scale: float, images: int = 1) -> Tensor:
        """See :meth:`strobe.app.loaders.base.Loader.scaled`."""


class NativePhotos(BatchData):
    """Photos, read when they are asked for.

    Those that the operators do not read (other formats than JPEG, CMYK) go through Pillow. Sizes are measured
    once, whichever worker process does so, forked or spawned.
    """

    def __init__(self, loader: Options, source: PhotoSource) -> None:
        super().__init__()
        load(photos.LIBRARY)
        self.loader = loader
        self.source = source
        self.varies = source.framing.varies
        self.others = PilLoader(scale="device")
        # Height and width; 0: not known; -1: not for the operators. In memory that all workers share.
        self.sizes = shared_zeros((len(source), 2), torch.int32)

    def __len__(self) -> int:
        return len(self.source)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Pixels (N, 3, size, size) uint8 and labels (N,).

        Raises:
            DataError: a photo cannot be read; names it.
        """
        source, size, count = self.source, self.source.framing.size, len(indices)
        places = torch.tensor(list(indices))
        files = source.indices[places]
        epoch = getattr(indices, "epoch", 0)
        pixels = self.buffers.take((count, 3, size, size), torch.uint8)
        with span("read+decode", count):
            unread = photos.read_photos(
                pixels,
                source.paths,
                files,
                torch.from_numpy(self._boxes(places.numpy(), files, epoch)),
                scaled=self.loader.dct_scaling,
                threads=self.loader.threads or threads(),
            )
        for place in unread.nonzero().flatten().tolist():
            pixels[place] = self._other(int(files[place]), epoch)
        return self.loader.scaled(pixels, source.full_scale, count), source.targets[files]

    def _boxes(self, places: NDArray[np.int64], files: Tensor, epoch: int) -> Boxes:
        """The box (N, 4) of each photo; of one that is not to be read here, a box that no photo has."""
        known = self.sizes.numpy()
        sizes = known[places].astype(np.int64)
        unknown = (sizes == 0).any(axis=1)  # any: another process may have written a height but not yet the width
        if unknown.any():
            number = self.loader.threads or threads()
            found = photos.measure_photos(self.source.paths, files[unknown], threads=number).numpy()
            sizes[unknown] = known[places[unknown]] = np.where(found > 0, found, -1)
        sizes = np.maximum(sizes, 0)
        boxes = self.source.framing.boxes(sizes, files.numpy(), epoch)
        boxes[sizes[:, 0] == 0] = 0
        return boxes

    def _other(self, photo: int, epoch: int) -> Tensor:
        def read(path: str) -> Tensor:
            return self.others.pixels(path, framed(self.source, photo, epoch), self.source.framing.size)

        return self.loader.fallback.read(self.source.paths[photo], "photo", read, _OTHERS)
