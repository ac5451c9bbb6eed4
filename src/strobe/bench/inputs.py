"""The suites' input: the user's files, or generated ones. Imports torch only when it is used."""

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from strobe.bench.harness.declare import Input, Request
from strobe.errors import ConfigError, DataError
from strobe.overrides import key_of

if TYPE_CHECKING:
    from strobe.app.data.base import ImageData

MOST_FILES = 4096  # of a larger set as many are chosen at random, so that they fit into the page cache
GENERATED_PHOTOS = 48  # of 800x533, 50 to 100 kB each
GENERATED_IMAGES = 1000  # of 32x32, in each of six files
JPEG = (".jpg", ".jpeg")


def prepared(overrides: Sequence[str]) -> "tuple[ImageData, DictConfig]":
    """The data of a configuration of ``train.py``, found and split, with that configuration."""
    from strobe.app.build.instantiate import set_up_data
    from strobe.app.config.compose import configure

    cfg = configure(overrides)
    return set_up_data(cfg), cfg


def loader_keys(choice: str, packs: str) -> list[str]:
    """The overrides for a loader such as ``native loader.threads=2``; packs go below ``packs``."""
    keys = f"loader={choice}".split()
    return [*keys, f"loader.directory={packs}"] if keys[0] == "loader=packed" else keys


def files_of(source: Any) -> list[str]:
    """The files of a source's images; none of a source in memory."""
    return [source.path(index) for index in range(len(source))] if hasattr(source, "path") else []


def require_sound(entry: str, overrides: Sequence[str]) -> None:
    """Raise a ConfigError for impossible overrides; it names the suite's ``entry`` that they come from."""
    from hydra.errors import HydraException

    from strobe.app.config.checks import check
    from strobe.app.config.compose import configure

    try:
        check(configure(overrides))
    except (HydraException, ConfigError) as error:
        raise ConfigError(f"{entry} cannot be measured: {' '.join(str(error).split())}") from error


def gives(overrides: Sequence[str], *keys: str) -> bool:
    """Whether the user gives one of these keys."""
    return any(key_of(override) in keys for override in overrides)


def find_data(request: Request, scratch: Path) -> Input:
    """The DataModule's images; CIFAR-10's, where none are given, are generated below ``scratch``.

    ``facts`` are ``images``, those of the training split. Raises a StrobeError if something is missing or damaged.
    """
    extra: tuple[str, ...] = (f"data={request.data}",)
    title = ""
    files = gives(request.overrides, "data.root", "data.download") or "STROBE_DATA" in os.environ
    generated = request.data == "cifar10" and not files
    if generated:
        write_cifar10(scratch / "cifar-10-batches-py")
        extra += (f"data.root={scratch}", "data.verify=false")
    elif request.data == "image_folder" and not gives(request.overrides, "data.root"):
        photos = find_photos(request, scratch, most=MOST_FILES)
        title, generated = photos.title, photos.generated
        extra += (f"data.root={class_folders(photos.facts['paths'], scratch / 'classes')}",)
    data, _ = prepared([*extra, *request.overrides])
    count = len(data.datasets["train"])
    if not title:
        title = "noise in CIFAR-10's form, generated" if generated else data.title
    title = f"{title}: {count:,} images for training"
    return Input(title, generated or data.generated, extra, {"images": count})


def find_loaded(request: Request, scratch: Path, loaders: Sequence[str], *, packed: bool) -> Input:
    """Like ``find_data``, for these loaders; packs for ``packed`` are written here, before any cell is measured.

    ``facts`` have ``packs`` too, the folder for what is packed.
    """
    source, packs = find_data(request, scratch), str(scratch / "packs")
    common = [*source.overrides, *request.overrides]
    for loader in loaders:
        require_sound(f"suite.loaders: {loader!r}", [*common, *loader_keys(loader, packs)])
    if packed:
        prepared([*common, *loader_keys("packed", packs)])
    return Input(source.title, source.generated, source.overrides, {**source.facts, "packs": packs})


def require_batch(size: int, source: Input, instead: str) -> None:
    """Raise a ConfigError if there are too few images for such batches."""
    if size > (images := int(source.facts["images"])):
        raise ConfigError(
            f"batches of {size} are more than the {images:,} images to train on ({source.title}); give a smaller "
            f"{instead}, or more images with data.root=DIR"
        )


def find_photos(request: Request, scratch: Path, *, most: int | None = None) -> Input:
    """JPEGs at any depth below ``data.root`` or, where only STROBE_DATA is given, in its ``photos``; or generated ones.

    Of more than ``most``, so many are chosen at random, the same each time. ``facts`` are ``paths``, in order. Raises a
    DataError if there are none.
    """
    from strobe.app.storage.local import LocalFolder

    rooted = gives(request.overrides, "data.root")
    shared = Path(os.environ.get("STROBE_DATA", "")) / "photos"
    root = Path(request.cfg.data.root) if rooted else shared
    real = rooted or ("STROBE_DATA" in os.environ and shared.is_dir())
    names = LocalFolder(root).files(JPEG, below=True) if real and root.is_dir() else []
    photos = sorted(root / name for name in names)
    paths = photos if real else write_photos(scratch / "photos", GENERATED_PHOTOS)
    if not paths:
        where = f"data.root={root}" if rooted else f"STROBE_DATA={os.environ['STROBE_DATA']}: its folder photos"
        otherwise = "leave data.root out to measure on generated ones" if rooted else "unset STROBE_DATA"
        raise DataError(
            f"{where} holds no JPEG photos, at any depth; give a folder of photos such as ImageNet's val as data.root, "
            f"or {otherwise}"
        )
    title = f"{len(paths):,} photo{'s'[: len(paths) != 1]}" if real else f"{len(paths)} generated photos of 800x533"
    if most is not None and len(paths) > most:
        paths = [paths[place] for place in sorted(np.random.default_rng(0).permutation(len(paths))[:most])]
        title = f"{most:,} of {title}"
    return Input(title, not real, ("data=image_folder",), {"paths": [str(path) for path in paths]})


def class_folders(paths: Sequence[str], folder: Path) -> Path:
    """Links to the files from two class folders, so that ``data=image_folder`` finds them; gives the folder."""
    for number, path in enumerate(map(Path, paths)):
        link = folder / f"class{number % 2}" / f"{number:07}{path.suffix}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.absolute())
    return folder


def write_photos(folder: Path, count: int) -> list[Path]:
    """JPEGs of 800x533, quality 90, 4:2:0, with the falling spectrum of photos; the same each time."""
    from PIL import Image

    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    height, width = 533, 800
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = 1.0
    paths = []
    for number in range(count):
        planes = []
        for contrast, slope in ((45, 1.2), (12, 1.5), (12, 1.5)):  # luma, and two of chroma, which change more slowly
            noise = np.fft.rfft2(generator.standard_normal((height, width))) / frequency**slope
            plane = np.fft.irfft2(noise, s=(height, width))
            planes.append(128 + contrast * plane / plane.std())
        pixels = np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)
        path = folder / f"{number:03}.jpg"
        Image.frombytes("YCbCr", (width, height), pixels.tobytes()).convert("RGB").save(path, quality=90, subsampling=2)
        paths.append(path)
    return paths


def write_cifar10(folder: Path) -> None:
    """Noise in CIFAR-10's form: five batches for training and one for the test, of ``GENERATED_IMAGES`` each."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        pixels = generator.integers(0, 256, (GENERATED_IMAGES, 3 * 32 * 32), dtype=np.uint8)
        batch = {"data": pixels, "labels": [index % 10 for index in range(GENERATED_IMAGES)]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {label}" for label in range(10)]}))
