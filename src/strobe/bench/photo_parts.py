"""Photos: only the crop decoded against the whole photo, from memory and from files; and a training step with each."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.functional import pil_to_tensor

from strobe.bench.contest import Entrant, Result, Work, contest
from strobe.bench.crop_pipeline import Step, prepare
from strobe.bench.loading_parts import loader_entrant, prepared
from strobe.checks import loaders_for
from strobe.errors import DataError
from strobe.native import photos as native
from strobe.native.build import load

CROP = 256
STEP_BATCH = 16
Decode = Callable[[bytes, int, int], Tensor]
"""Encoded photo, top and left of the crop, to (3, CROP, CROP) uint8."""


def crops(rounds: int, seconds: float) -> list[Result]:
    """Crops of 256x256 at random places, from encoded photos in memory, on one thread."""
    torch.set_num_threads(1)
    photos = encoded()
    return contest(
        [
            *(Entrant(name, _cropping(photos, make)) for name, make in DECODERS.items()),
            Entrant("native, batches of 32", lambda: _batches(photos)),
        ],
        rounds=rounds,
        seconds=seconds,
    )


def steps(rounds: int, seconds: float) -> list[Result]:
    """The same crops in a published pipeline, with a training step."""
    torch.set_num_threads(1)
    photos = encoded()
    return contest(
        [Entrant(name, _training(photos, make)) for name, make in DECODERS.items()], rounds=rounds, seconds=seconds
    )


def framings(overrides: list[str], rounds: int, seconds: float) -> dict[str, list[Result]]:
    """Photo files by every loader, on one thread, for each way to make a square of one."""
    torch.set_num_threads(1)
    results = {}
    with class_folders() as root:
        for framing, size in (("random_crop", CROP), ("random_resized_crop", 224), ("resize", 224)):
            common = ["data=image_folder", f"data.root={root}", f"data.framing={framing}", f"data.size={size}"]
            data, _ = prepared([*common, *overrides])
            names = [name for name in loaders_for("photos") if name != "packed" or framing == "resize"]
            entrants = [loader_entrant(data, [*common, *overrides], name) for name in names]
            if framing != "random_crop":
                whole = "loader.dct_scaling=false"
                title = f"loader=native {whole}"
                entrants.append(loader_entrant(data, [*common, *overrides], "native", whole, title=title))
            results[f"{framing}, {size}"] = contest(entrants, rounds=rounds, seconds=seconds)
    return results


def _pil() -> Decode:
    def decode(photo: bytes, top: int, left: int) -> Tensor:
        whole: Tensor = pil_to_tensor(Image.open(BytesIO(photo)).convert("RGB"))
        return whole[:, top : top + CROP, left : left + CROP]

    return decode


def _torchvision() -> Decode:
    def decode(photo: bytes, top: int, left: int) -> Tensor:
        whole: Tensor = decode_jpeg(torch.frombuffer(bytearray(photo), dtype=torch.uint8), ImageReadMode.RGB)
        return whole[:, top : top + CROP, left : left + CROP]

    return decode


def _native() -> Decode:
    load(native.LIBRARY)

    def decode(photo: bytes, top: int, left: int) -> Tensor:
        data = torch.frombuffer(bytearray(photo), dtype=torch.uint8)
        return native.decode_crop_jpeg(data, top, left, CROP, CROP)

    return decode


DECODERS: dict[str, Callable[[], Decode]] = {"PIL": _pil, "torchvision": _torchvision, "native": _native}


def encoded() -> list[tuple[bytes, int, int]]:
    """The photos of ``photo_folder``: encoded, with height and width."""
    found = []
    for path in _paths():
        with Image.open(path) as photo:
            if min(photo.size) >= CROP:
                found.append((path.read_bytes(), photo.height, photo.width))
    if not found:
        raise DataError(f"{_folder()} holds no JPEG of {CROP} pixels or more; name another folder in STROBE_DATA")
    return found


def _places(photos: list[tuple[bytes, int, int]]) -> Iterator[tuple[bytes, int, int]]:
    generator = np.random.default_rng(0)
    while True:
        for place in generator.permutation(len(photos)):
            photo, height, width = photos[place]
            yield photo, int(generator.integers(height - CROP + 1)), int(generator.integers(width - CROP + 1))


def _cropping(photos: list[tuple[bytes, int, int]], make: Callable[[], Decode]) -> Callable[[], Work]:
    def prepare_work() -> Work:
        decode, places = make(), _places(photos)

        def work() -> int:
            decode(*next(places)).contiguous()
            return 1

        return work

    return prepare_work


def _batches(photos: list[tuple[bytes, int, int]], size: int = 32) -> Work:
    load(native.LIBRARY)
    places = _places(photos)
    out = torch.empty(size, 3, CROP, CROP, dtype=torch.uint8)

    def work() -> int:
        chosen = [next(places) for _ in range(size)]
        data = [torch.frombuffer(bytearray(photo), dtype=torch.uint8) for photo, _, _ in chosen]
        boxes = torch.tensor([[top, left, CROP, CROP] for _, top, left in chosen])
        native.decode_crop_jpegs(out, data, boxes, scaled=False, threads=1)
        return size

    return work


def _training(photos: list[tuple[bytes, int, int]], make: Callable[[], Decode]) -> Callable[[], Work]:
    def prepare_work() -> Work:
        decode, places, step, generator = make(), _places(photos), Step(), np.random.default_rng(0)

        def work() -> int:
            step(torch.stack([prepare(decode(*next(places)), generator) for _ in range(STEP_BATCH)]))
            return STEP_BATCH

        return work

    return prepare_work


def _folder() -> Path:
    return Path(os.environ.get("STROBE_DATA", "data")) / "photos"


def _paths() -> list[Path]:
    found = sorted(path for path in _folder().rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise DataError(f"{_folder()} holds no JPEG; name the folder above it in the variable STROBE_DATA")
    return found


@contextmanager
def class_folders() -> Iterator[Path]:
    """The photos as a tree of class folders, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(_paths()):
            link = Path(folder) / f"class{number % 2}" / path.name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(path.absolute())
        yield Path(folder)
