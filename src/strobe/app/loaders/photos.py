"""What loaders of photos share: a box of each photo becomes a square."""

from abc import abstractmethod
from collections.abc import Callable
from io import BytesIO

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from strobe.app.loaders.base import BatchData, FileLoader, Selection
from strobe.app.loaders.sources import MOST_PIXELS, TOO_LARGE, PhotoSource
from strobe.app.storage.objects import part
from strobe.callbacks.spans import span

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP")  # recognised by content, whatever the file's name
Box = tuple[int, int, int, int]
"""Top, left, height and width, in pixels."""
Frame = Callable[[int, int], Box]
"""The box of a photo of this height and width."""


class PhotoLoader(FileLoader[PhotoSource, Tensor]):
    """A backend that decodes one photo at a time; Pillow decodes what it cannot."""

    kind = "photo"

    @abstractmethod
    def decode(self, content: bytes, frame: Frame, size: int) -> Tensor | None:
        """Colours (3, size, size) uint8 of the box that ``frame`` returns; None leaves the photo to Pillow."""

    def dataset(self, source: PhotoSource) -> "PhotoData":
        """A data set of whole batches, because a photo's crop depends on the batch's epoch."""
        return PhotoData(self, source)

    def of_bytes(self, path: str, content: bytes, frame: Frame, size: int) -> Tensor:
        """Colours (3, size, size) uint8 of a file's content."""
        with span("decode", 1), opened(content) as photo:
            part = self.decode(content, frame, size)
            return by_pillow(photo, frame, size) if part is None else part


class PhotoData(BatchData):
    """Photos, read on request."""

    loader: PhotoLoader
    source: PhotoSource

    def __init__(self, loader: PhotoLoader, source: PhotoSource) -> None:
        super().__init__(loader, source)
        self.varies = source.framing.varies
        self.shape = (3, source.framing.size, source.framing.size)

    def fill(self, pixels: Tensor, selection: Selection) -> None:
        """Photo by photo."""
        for place, photo in enumerate(selection.images.tolist()):
            frame = framed(self.source, photo, selection.epoch)
            path, content = self.source.paths[photo], part(selection.contents, place)
            pixels[place] = self.loader.pixels(path, frame, self.source.framing.size, content=content)


def framed(source: PhotoSource, photo: int, epoch: int) -> Frame:
    """The box of photo number ``photo`` of the set in this epoch."""

    def frame(height: int, width: int) -> Box:
        (box,) = source.framing.boxes(np.array([[height, width]]), np.array([photo]), epoch).tolist()
        top, left, tall, wide = box
        return top, left, tall, wide

    return frame


def opened(content: bytes) -> Image.Image:
    """A photo whose header alone has been read, so its size is known before it is decoded; else raises a ValueError."""
    try:
        photo = Image.open(BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:  # whose text names the buffer
        raise ValueError("its format is not known") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise ValueError(TOO_LARGE) from None
    if photo.width * photo.height > MOST_PIXELS:  # Pillow only warns
        raise ValueError(TOO_LARGE)
    return photo


def by_pillow(photo: Image.Image, frame: Frame, size: int) -> Tensor:
    """Colours (3, size, size) uint8 of an opened photo; raises any exception when it cannot be read.

    Anything that is not RGB is converted to it: grey, also in 16 bits, palettes, transparency (dropped) and CMYK.
    """
    top, left, height, width = frame(photo.height, photo.width)
    part: Image.Image = photo.crop((left, top, left + width, top + height))
    if part.mode.startswith("I"):  # grey in 16 bits, which Pillow would clip at 255
        part = Image.fromarray((np.asarray(part) // 257).astype(np.uint8))
    if part.mode != "RGB":
        part.info.pop("transparency", None)  # the conversion would warn about it, without changing a colour
        part = part.convert("RGB")
    if (height, width) != (size, size):
        part = part.resize((size, size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(part)).permute(2, 0, 1)
