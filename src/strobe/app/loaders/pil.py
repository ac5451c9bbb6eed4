"""Photos by Pillow: the whole photo is decoded, then the box is cut out."""

import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from strobe.app.loaders.photos import Frame, PhotoLoader
from strobe.callbacks.spans import span

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP")  # told by a file's content, whatever its name

# More pixels than Pillow finds credible are refused, not warned of; the filter holds in every thread and worker.
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


class PilLoader(PhotoLoader):
    """``Image.open(path).crop(box).resize((size, size), BILINEAR)``, as a plain torchvision data set does.

    Anything that is not RGB is converted to it: grey, palettes, transparency (dropped) and CMYK. The orientation
    noted in EXIF is ignored, by all loaders of photos. JPEG's draft mode, which would decode at a lower
    resolution, is not used: pixels would differ.
    """

    def read(self, path: str, frame: Frame, size: int) -> Tensor:
        """Colours (3, size, size) uint8 of one file."""
        with span("read", 1):
            content = Path(path).read_bytes()
        with span("decode", 1):
            return decode(content, frame, size)


def decode(content: bytes, frame: Frame, size: int) -> Tensor:
    """Colours (3, size, size) uint8 of an encoded photo; what no other loader can read is read by this.

    Raises:
        Exception: of any kind, when it cannot be read.
    """
    try:
        opened = Image.open(BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:  # whose text names the buffer
        raise ValueError("it is no image of a known format") from None
    with opened as photo:
        top, left, height, width = frame(photo.height, photo.width)
        part: Image.Image = photo.crop((left, top, left + width, top + height))
    if part.mode != "RGB":
        part.info.pop("transparency", None)  # on which the conversion would warn, and change no colour
        part = part.convert("RGB")
    if (height, width) != (size, size):
        part = part.resize((size, size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(part)).permute(2, 0, 1)
