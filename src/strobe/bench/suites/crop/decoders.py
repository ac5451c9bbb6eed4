"""Crops of encoded photos in memory: the whole photo decoded and then cropped, or only the crop decoded."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.functional import pil_to_tensor

from strobe.app.loaders.spdl import SpdlLoader
from strobe.app.native import photos as native
from strobe.app.native.build import load
from strobe.app.native.files import Files
from strobe.errors import DataError

CROP = 256  # pixels, of a side
Decode = Callable[[bytes, int, int], Tensor]
"""Encoded photo, top and left of the crop, to (3, CROP, CROP) uint8."""
Size = tuple[int, int]
"""Height and width of a photo."""


def _pil(photo: bytes, top: int, left: int) -> Tensor:
    whole: Tensor = pil_to_tensor(Image.open(BytesIO(photo)))
    return whole[:, top : top + CROP, left : left + CROP]


def _torchvision(photo: bytes, top: int, left: int) -> Tensor:
    whole: Tensor = decode_jpeg(torch.frombuffer(bytearray(photo), dtype=torch.uint8), ImageReadMode.RGB)
    return whole[:, top : top + CROP, left : left + CROP]


def _spdl() -> Decode:
    """By FFmpeg, whose own crop rounds the place to whole samples of colour; so its quickest way, not its exact one."""
    SpdlLoader(scale="device")  # says what to install
    import spdl.io

    def decode(photo: bytes, top: int, left: int) -> Tensor:
        packets = spdl.io.demux_image(photo)
        filters = f"crop={CROP}:{CROP}:{left}:{top},format=pix_fmts=rgb24"
        frames = spdl.io.convert_frames(spdl.io.decode_packets(packets, filter_desc=filters))
        pixels: Tensor = spdl.io.to_torch(frames)
        return pixels.permute(2, 0, 1)

    return decode


def _native() -> Decode:
    load(native.LIBRARY)

    def decode(photo: bytes, top: int, left: int) -> Tensor:
        data = torch.frombuffer(bytearray(photo), dtype=torch.uint8)
        return native.decode_crop_jpeg(data, top, left, CROP, CROP)

    return decode


DECODERS: dict[str, Callable[[], Decode]] = {
    "pil": lambda: _pil,
    "torchvision": lambda: _torchvision,
    "spdl": _spdl,
    "native": _native,
}


class Places:
    """Crops at random places of photos, read into memory here, in random order; each photo as often as the others."""

    def __init__(self, paths: Sequence[str], sizes: Sequence[Size]) -> None:
        self.photos = [Path(path).read_bytes() for path in paths]
        self.sizes = sizes

    def pixels(self) -> float:
        """How many a photo has, in the median."""
        return float(median(height * width for height, width in self.sizes))

    def drawn(self, seed: int = 0) -> Iterator[tuple[bytes, int, int]]:
        """Encoded photo, top and left of the crop."""
        generator = np.random.default_rng(seed)
        while True:
            for number in generator.permutation(len(self.photos)):
                top, left = (int(generator.integers(side - CROP + 1)) for side in self.sizes[number])
                yield self.photos[number], top, left


def decode_batches(places: Places, size: int) -> Callable[[], Tensor]:
    """The native operator's form for whole batches, on one thread: gives (size, 3, CROP, CROP) uint8, used again.

    When called it raises a DataError where a photo cannot be decoded.
    """
    load(native.LIBRARY)
    drawn = places.drawn()
    out = torch.empty(size, 3, CROP, CROP, dtype=torch.uint8)

    def decode() -> Tensor:
        chosen = [next(drawn) for _ in range(size)]
        photos = [photo for photo, _, _ in chosen]
        text = torch.frombuffer(bytearray().join(photos), dtype=torch.uint8)
        files = Files(text, torch.tensor([len(photo) for photo in photos]).cumsum(0))
        boxes = torch.tensor([[top, left, CROP, CROP] for _, top, left in chosen])
        if native.read_photos(out, files, boxes, scaled=False, threads=1).any():
            raise DataError("the native decoder does not read one of the photos; remove those with scans missing")
        return out

    return decode


def measured(path: str) -> Size | None:
    """Height and width of a photo in colours and large enough, else None; a DataError where it is damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            photo = Image.open(path)
        with photo:
            if photo.format != "JPEG" or photo.mode != "RGB" or min(photo.size) < CROP:
                return None
            photo.load()
            return photo.height, photo.width
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise DataError(f"{path} is too large for Pillow to decode in one piece ({error}); remove it") from error
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise DataError(f"{path} is not a whole photo ({error}); remove it, or copy it again") from error
