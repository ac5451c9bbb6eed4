"""Photos to read, made here: smooth with some noise, as those of a camera are, in every form that a file can have."""

import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from strobe.app.loaders.base import LoadedData
from strobe.app.loaders.crop_policy import CropPolicy
from strobe.app.loaders.sources import PathTable, PhotoSource
from strobe.errors import DataError
from support.choices import choices, make

CHOICES = choices("loader")
PHOTO_LOADERS = [name for name, choice in CHOICES.items() if "photos" in choice.reads]
FRAMED = [name for name in PHOTO_LOADERS if name != "packed"]  # it packs whole photos, resized

JPEG: dict[str, dict[str, Any]] = {
    "444": {"subsampling": 0},
    "422": {"subsampling": 1},
    "420": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_blocks": 3},
    "grey": {"mode": "L"},
    "CMYK": {"mode": "CMYK"},
    "turned": {"exif": 6},
}
PNG: dict[str, dict[str, Any]] = {
    "RGB": {},
    "RGBA": {"mode": "RGBA"},
    "grey": {"mode": "L"},
    "grey with alpha": {"mode": "LA"},
    "palette": {"mode": "P"},
    "transparent palette": {"mode": "P", "transparency": bytes(range(256))},
    "black and white": {"mode": "1"},
    "16 bits": {"mode": "I;16"},
}


def photograph(height: int, width: int, seed: int = 0) -> Image.Image:
    """Light that changes smoothly, colours that do so less, and noise of four levels."""
    generator = np.random.default_rng(seed)
    light, colours = generator.uniform(40, 215, (4, 5, 1)), generator.uniform(-40, 40, (4, 5, 3))
    coarse = Image.fromarray((light + colours).astype(np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float64)
    return Image.fromarray(np.clip(smooth + generator.normal(0, 4, smooth.shape), 0, 255).astype(np.uint8))


def save(path: Path, image: Image.Image, *, mode: str = "RGB", exif: int | None = None, **options: Any) -> str:
    """Write ``image`` in another ``mode``, with EXIF's ``exif`` as its orientation; the name's end is the format."""
    if mode.endswith("A"):
        image = image.convert("RGB")
        image.putalpha(image.convert("L"))
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    elif image.mode != mode:
        image = image.convert(mode)
    if exif is not None:
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = exif
    image.save(path, **options)
    return str(path)


def black_png(height: int, width: int) -> bytes:
    """One bit a pixel, all black: a thousandth of a byte."""

    def chunk(kind: bytes, held: bytes) -> bytes:
        return struct.pack(">I", len(held)) + kind + held + struct.pack(">I", zlib.crc32(kind + held))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(height * (1 + -(-width // 8))))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def reference(path: str, box: tuple[int, int, int, int], size: int) -> NDArray[np.uint8]:
    """Colours (3, size, size) of a box: top, left, height and width."""
    top, left, height, width = box
    with warnings.catch_warnings(), Image.open(path) as photo:
        warnings.simplefilter("ignore")  # of transparency, which is lost
        grey = Image.fromarray((np.asarray(photo) // 257).astype(np.uint8)) if photo.mode == "I;16" else photo
        part = grey.convert("RGB").crop((left, top, left + width, top + height))
    if (height, width) != (size, size):
        part = part.resize((size, size), Image.Resampling.BILINEAR)
    return np.moveaxis(np.asarray(part), -1, 0)


def photo_source(paths: list[str], framing: CropPolicy, chosen: list[int] | None = None) -> PhotoSource:
    """Each photo is a class of its own."""
    everything = torch.arange(len(paths))
    return PhotoSource(PathTable(paths), everything, everything if chosen is None else torch.tensor(chosen), framing)


def made(name: str, source: Any, directory: Path, **options: Any) -> LoadedData:
    """What a loader makes of a source, as its schema has it but for ``options``; what it writes, it writes there.

    Skips the test where what the loader needs is not installed.
    """
    try:
        made: LoadedData = make(CHOICES[name], directory=str(directory), **options).dataset(source)
        return made
    except DataError as error:
        if "install" in str(error):
            pytest.skip(str(error))
        raise
