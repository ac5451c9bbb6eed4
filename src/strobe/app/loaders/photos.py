"""What loaders of photos have in common: each photo is framed, and becomes a square of one size."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from strobe.app.loaders.base import Batch, BatchData, Loader, unreadable
from strobe.app.loaders.sources import PhotoSource
from strobe.errors import DataError

Box = tuple[int, int, int, int]
"""Top, left, height and width, in pixels."""
Frame = Callable[[int, int], Box]
"""The box of a photo of this height and width."""


class PhotoLoader(Loader[PhotoSource]):
    """A backend that reads one photo at a time."""

    @abstractmethod
    def read(self, path: str, frame: Frame, size: int) -> Tensor:
        """Colours (3, size, size) uint8 of what ``frame`` gives; any exception means that it cannot be read."""

    def dataset(self, source: PhotoSource) -> "PhotoData":
        """A batch at a time: how a photo is framed depends on the batch's epoch."""
        return PhotoData(self, source)

    def pixels(self, path: str, frame: Frame, size: int) -> Tensor:
        """As :meth:`read`.

        Raises:
            DataError: the file cannot be read; names it.
        """
        try:
            return self.read(path, frame, size)
        except DataError:
            raise
        except Exception as error:
            raise unreadable(path, "photo", error) from error


class PhotoData(BatchData):
    """Photos, read when they are asked for."""

    loader: PhotoLoader
    source: PhotoSource

    def __init__(self, loader: PhotoLoader, source: PhotoSource) -> None:
        super().__init__(loader, source)
        self.varies = source.framing.varies

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Pixels (N, 3, size, size) uint8 and labels (N,)."""
        source, size = self.source, self.source.framing.size
        photos = source.indices[list(indices)]
        epoch = getattr(indices, "epoch", 0)
        pixels = self.buffers.take((len(photos), 3, size, size), torch.uint8)
        for place, photo in enumerate(photos.tolist()):
            frame = framed(source, photo, epoch)
            pixels[place] = self.loader.pixels(source.paths[photo], frame, size)
        return self.loader.scaled(pixels, source.full_scale, len(photos)), source.targets[photos]


def framed(source: PhotoSource, photo: int, epoch: int) -> Frame:
    """How photo number ``photo`` of the set is framed in this epoch."""

    def frame(height: int, width: int) -> Box:
        (box,) = source.framing.boxes(np.array([[height, width]]), np.array([photo]), epoch).tolist()
        top, left, tall, wide = box
        return top, left, tall, wide

    return frame
