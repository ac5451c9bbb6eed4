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
from torch.utils.data import DataLoader, IterableDataset
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.functional import pil_to_tensor

from strobe.bench.contest import Entrant, Result, Work, contest
from strobe.bench.crop_pipeline import Step, prepare
from strobe.bench.loading_parts import loader_entrant, prepared
from strobe.checks import loaders_for
from strobe.errors import DataError
from strobe.loaders.spdl import SpdlLoader
from strobe.native import photos as native
from strobe.native.build import load

CROP = 256
PHOTO_BATCH = 32
STEP_BATCH = 16
AHEAD = 2  # batches that the worker keeps ready
Photo = tuple[bytes, int, int]
"""Encoded photo, height and width."""
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
    """Training steps on the same crops: one worker process does all that a published pipeline does to each."""
    torch.set_num_threads(1)
    photos = encoded()
    return contest(
        [Entrant(name, _training(photos, make), skip=AHEAD + 1) for name, make in DECODERS.items()],
        rounds=rounds,
        seconds=4 * seconds,
    )


def framings(overrides: list[str], rounds: int, seconds: float) -> dict[str, list[Result]]:
    """Photo files by every loader, on one thread, for each way to make a square of one."""
    torch.set_num_threads(1)
    results = {}
    with class_folders() as root, tempfile.TemporaryDirectory() as packs:
        for framing, size in (("random_crop", CROP), ("random_resized_crop", 224), ("resize", 224)):
            common = ["data=image_folder", f"data.root={root}", f"data.framing={framing}", f"data.size={size}"]
            data, _ = prepared([*common, *overrides])
            choices = [name for name in loaders_for("photos") if name != "packed" or framing == "resize"]
            choices += ["native loader.dct_scaling=false"] * (framing != "random_crop")
            entrants = [loader_entrant(data, [*common, *overrides], choice, packs, PHOTO_BATCH) for choice in choices]
            results[f"{framing}, {size}"] = contest(entrants, rounds=rounds, seconds=seconds)
    return results


def _pil() -> Decode:
    def decode(photo: bytes, top: int, left: int) -> Tensor:
        whole: Tensor = pil_to_tensor(Image.open(BytesIO(photo)))
        return whole[:, top : top + CROP, left : left + CROP]

    return decode


def _torchvision() -> Decode:
    def decode(photo: bytes, top: int, left: int) -> Tensor:
        whole: Tensor = decode_jpeg(torch.frombuffer(bytearray(photo), dtype=torch.uint8), ImageReadMode.RGB)
        return whole[:, top : top + CROP, left : left + CROP]

    return decode


def _spdl() -> Decode:
    """By FFmpeg, whose own crop rounds the place to whole samples of colour; so its quickest way, not its exact one."""
    SpdlLoader(scale="device")  # says what to install
    import spdl.io

    def decode(photo: bytes, top: int, left: int) -> Tensor:
        packets = spdl.io.demux_image(photo)
        filters = f"crop={CROP}:{CROP}:{left}:{top},format=pix_fmts=rgb24"
        frames = spdl.io.convert_frames(spdl.io.decode_packets(packets, filter_desc=filters))
        return torch.from_numpy(np.array(spdl.io.to_numpy(frames))).permute(2, 0, 1)

    return decode


def _native() -> Decode:
    load(native.LIBRARY)

    def decode(photo: bytes, top: int, left: int) -> Tensor:
        data = torch.frombuffer(bytearray(photo), dtype=torch.uint8)
        return native.decode_crop_jpeg(data, top, left, CROP, CROP)

    return decode


DECODERS: dict[str, Callable[[], Decode]] = {
    "PIL": _pil,
    "torchvision": _torchvision,
    "spdl.io": _spdl,
    "native": _native,
}


def encoded() -> list[Photo]:
    """The photos of ``photo_folder``: encoded, with height and width."""
    found = []
    for path in _paths():
        with Image.open(path) as photo:
            if min(photo.size) >= CROP and photo.mode == "RGB":
                found.append((path.read_bytes(), photo.height, photo.width))
    if not found:
        raise DataError(f"{_folder()} holds no JPEG of {CROP} pixels or more; name another folder in STROBE_DATA")
    return found


def _places(photos: list[Photo]) -> Iterator[tuple[bytes, int, int]]:
    generator = np.random.default_rng(0)
    while True:
        for place in generator.permutation(len(photos)):
            photo, height, width = photos[place]
            yield photo, int(generator.integers(height - CROP + 1)), int(generator.integers(width - CROP + 1))


def _cropping(photos: list[Photo], make: Callable[[], Decode]) -> Callable[[], Work]:
    def prepare_work() -> Work:
        decode, places = make(), _places(photos)

        def work() -> int:
            decode(*next(places)).contiguous()
            return 1

        return work

    return prepare_work


def _batches(photos: list[Photo], size: int = 32) -> Work:
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


def _training(photos: list[Photo], make: Callable[[], Decode]) -> Callable[[], Work]:
    def prepare_work() -> Work:
        batches = DataLoader(_Prepared(photos, make()), STEP_BATCH, num_workers=1, prefetch_factor=AHEAD)
        ready, step = iter(batches), Step()

        def work() -> int:
            step(next(ready))
            return STEP_BATCH

        return work

    return prepare_work


class _Prepared(IterableDataset[Tensor]):
    """Crops as the published pipeline makes them, without an end."""

    def __init__(self, photos: list[Photo], decode: Decode) -> None:
        self.photos = photos
        self.decode = decode

    def __iter__(self) -> Iterator[Tensor]:
        generator = np.random.default_rng(0)
        for photo, top, left in _places(self.photos):
            yield prepare(self.decode(photo, top, left), generator)


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
