"""What is each photo backend's own: how far its pixels lie from Pillow's, what it refuses, and what it needs."""

import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from strobe.app.engines.sampler import Indices
from strobe.app.loaders import photos as by_photo
from strobe.app.loaders import spdl
from strobe.app.loaders.crop_policy import CropPolicy
from strobe.app.loaders.pil import PilLoader
from strobe.errors import DataError
from support.photo_files import made, photo_source, photograph, reference, save
from support.places import DATA
from support.refusals import refusal

FRAMINGS = [
    CropPolicy("random_crop", 128, True, 1),
    CropPolicy("random_resized_crop", 224, True, 1),
    CropPolicy("resize", 224),
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """As a camera's: 4:2:0, real ones where there are any."""
    real = [str(path) for path in sorted((DATA / "photos").glob("*.jpg"))[::10]]
    folder = tmp_path_factory.mktemp("photos")
    return real or [save(folder / f"{seed}.jpg", photograph(533, 800, seed), quality=90) for seed in range(8)]


def differences(name: str, framing: CropPolicy, photos: list[str], directory: Path) -> np.ndarray:
    """(N, 3, size, size) of 256 levels, between a loader's pixels and Pillow's."""
    data = made(name, photo_source(photos, framing), directory)
    numbers = np.arange(len(photos))
    pixels, _ = data.__getitems__(Indices(numbers, split="train", epoch=1, number=0))
    boxes = framing.boxes(np.array([reference_size(path) for path in photos]), numbers, 1).tolist()
    wanted = [reference(path, tuple(box), framing.size) for path, box in zip(photos, boxes, strict=True)]
    return np.abs(pixels.numpy().astype(int) - np.stack(wanted))


def reference_size(path: str) -> tuple[int, int]:
    with Image.open(path) as photo:
        return photo.height, photo.width


@pytest.mark.parametrize("framing", FRAMINGS, ids=lambda framing: framing.kind)
def test_ffmpeg_differs_by_less_than_a_level_in_the_mean(
    framing: CropPolicy, photos: list[str], tmp_path: Path
) -> None:
    found = differences("spdl", framing, photos, tmp_path)
    assert 0 < found.mean() < 1
    assert (found > 1).mean() < 0.25


@pytest.mark.parametrize("pixels", [(10_000, 10_000), (20_000, 10_000)], ids=["warned of", "refused"])
def test_pillow_reads_no_photo_that_would_fill_the_memory(pixels: tuple[int, int], tmp_path: Path) -> None:
    """Where the process's warnings are as Python has them, too."""
    bomb = tmp_path / "bomb.png"
    Image.new("1", pixels).save(bomb)
    with warnings.catch_warnings():
        warnings.resetwarnings()
        runpy.run_path(by_photo.__file__)
        loader = PilLoader(scale="device")
        with pytest.raises(DataError, match=r"bomb\.png cannot be read as a photo .* exceeds limit of \d+ pixels"):
            loader.pixels(str(bomb), lambda height, width: (0, 0, 8, 8), 8)


def test_pillow_reads_no_format_that_runs_programs(tmp_path: Path) -> None:
    """Encapsulated PostScript is drawn by Ghostscript."""
    path = tmp_path / "photo.jpg"
    photograph(8, 8).save(path, "EPS")
    with pytest.raises(DataError, match=r"photo\.jpg cannot be read as a photo"):
        made("pil", photo_source([str(path)], CropPolicy("resize", 8)), tmp_path)[0]


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        ([f"spdl.io.lib._spdl_ffmpeg{version}" for version in range(4, 20)], "sudo apt-get install ffmpeg"),
        (["spdl", "spdl.io"], "pip install 'spdl==0.8.*'"),
    ],
    ids=["FFmpeg", "SPDL"],
)
def test_what_spdl_needs_is_said(missing: list[str], remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "spdl"]:  # as in a new process
        monkeypatch.delitem(sys.modules, name)
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    spdl._library.cache_clear()
    said = refusal(lambda: spdl.SpdlLoader(scale="device"))
    assert said.startswith("loader=spdl needs")
    assert said.endswith(remedy)
