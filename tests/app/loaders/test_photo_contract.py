"""Every loader of photos gives the same pixels of the same boxes; new ones are found by listing conf/loader.

At the end, what is each backend's own.
"""

import os
import sys
import tempfile
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from strobe.app.engines.sampler import Indices
from strobe.app.loaders import spdl
from strobe.app.loaders.crop_policy import CropPolicy
from strobe.app.loaders.pil import PilLoader
from strobe.app.loaders.sources import TOO_LARGE
from strobe.errors import DataError
from support.files import DAMAGES, damaged
from support.photo_files import (
    FRAMED,
    JPEG,
    PHOTO_LOADERS,
    PNG,
    black_png,
    made,
    photo_source,
    photograph,
    reference,
    save,
)
from support.places import DATA, ROOT
from support.processes import begin, ended
from support.refusals import refusal

# How far a photo's pixels may lie from Pillow's in the mean, of 256 levels; as they are, and resized.
CROPPED = {"spdl": 3.0}
RESIZED = {"pil": 0.0, "torchvision": 0.25, "spdl": 3.0, "packed": 0.0}
SOME = 2.0  # for a loader that is not named above

RANDOM = [CropPolicy("random_crop", 48, True, 5), CropPolicy("random_resized_crop", 40, True, 5)]
CENTRED = [CropPolicy("random_crop", 48), CropPolicy("random_resized_crop", 40)]


def kinds(*framings: CropPolicy) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("framing", framings, ids=lambda framing: framing.kind)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Eight of different sizes, and some real ones where there are any."""
    folder = tmp_path_factory.mktemp("photos")
    sizes = [(101, 67), (67, 101), (64, 64), (48, 48), (120, 51), (49, 200), (97, 99), (150, 113)]
    made = [
        save(folder / f"{place}.{'png' if place % 4 == 3 else 'jpg'}", photograph(*size, seed=place))
        for place, size in enumerate(sizes)
    ]
    return made + [str(path) for path in sorted((DATA / "photos").glob("*.jpg"))[:4]]


def batch(indices: list[int], epoch: int = 0) -> Indices:
    return Indices(indices, split="train", epoch=epoch, number=0)


def size_of(path: str) -> tuple[int, int]:
    with Image.open(path) as photo:
        return photo.height, photo.width


def expected(path: str, framing: CropPolicy, photo: int, epoch: int) -> tuple[NDArray[np.uint8], bool]:
    """A photo's pixels by Pillow, and whether they were resized."""
    (box,) = framing.boxes(np.array([size_of(path)]), np.array([photo]), epoch).tolist()
    return reference(path, tuple(box), framing.size), box[2:] != [framing.size] * 2


def require_like(name: str, found: NDArray[np.uint8], wanted: NDArray[np.uint8], *, resized: bool) -> None:
    limit = RESIZED.get(name, SOME) if resized else CROPPED.get(name, 0.0)
    difference = np.abs(found.astype(int) - wanted)
    assert difference.mean() <= limit
    if name == "torchvision":
        assert difference.max() <= 1


@pytest.mark.parametrize(
    ("name", "framing"),
    [
        *((name, framing) for name in FRAMED for framing in (*RANDOM, *CENTRED)),
        *((name, CropPolicy("resize", size)) for name in PHOTO_LOADERS for size in (24, 96)),
    ],
)
def test_pixels_are_those_of_the_box(name: str, framing: CropPolicy, photos: list[str], tmp_path: Path) -> None:
    data = made(name, photo_source(photos, framing), tmp_path)
    assert len(data) == len(photos)
    assert data.varies == framing.random
    for epoch in (0, 3):
        pixels, labels = data.__getitems__(batch(list(range(len(photos))), epoch))
        assert pixels.shape == (len(photos), 3, framing.size, framing.size)
        assert pixels.dtype == torch.uint8
        assert labels.tolist() == list(range(len(photos)))
        for photo, path in enumerate(photos):
            wanted, resized = expected(path, framing, photo, epoch)
            require_like(name, pixels[photo].numpy(), wanted, resized=resized)
    if not framing.random:
        pixel, label = data[1]
        assert torch.equal(pixel, pixels[1])
        assert label == 1


@kinds(*RANDOM)
@pytest.mark.parametrize("name", FRAMED)
def test_a_crop_is_alike_in_any_batch(name: str, framing: CropPolicy, photos: list[str], tmp_path: Path) -> None:
    chosen = [5, 0, 7, 2, 6]
    whole = made(name, photo_source(photos, framing), tmp_path)
    part = made(name, photo_source(photos, framing, chosen), tmp_path)
    wanted = whole.__getitems__(batch(chosen, 2))
    pixels, labels = part.__getitems__(batch([0, 1, 2, 3, 4], 2))
    assert labels.tolist() == chosen
    assert torch.equal(pixels, wanted[0])
    backwards, _ = part.__getitems__(batch([4, 3, 2, 1, 0], 2))
    assert torch.equal(backwards.flip(0), pixels)
    for place in range(len(chosen)):
        (alone,), _ = part.__getitems__(batch([place], 2))
        assert torch.equal(alone, pixels[place])
    later, _ = part.__getitems__(batch([0, 1, 2, 3, 4], 3))
    assert not torch.equal(later, pixels)


@pytest.mark.parametrize("scale", ["numpy", "torch"])
@pytest.mark.parametrize("name", PHOTO_LOADERS)
def test_scaled_pixels_lie_between_0_and_1(name: str, scale: str, photos: list[str], tmp_path: Path) -> None:
    source = photo_source(photos[:3], CropPolicy("resize", 32))
    integers, _ = made(name, source, tmp_path).__getitems__(batch([2, 0, 1]))
    pixels, labels = made(name, source, tmp_path, scale=scale).__getitems__(batch([2, 0, 1]))
    assert labels.tolist() == [2, 0, 1]
    torch.testing.assert_close(pixels, integers.float() / 255)


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("name", PHOTO_LOADERS)
def test_every_form_of_file_becomes_rgb(name: str, suffix: str, tmp_path: Path) -> None:
    """Turned: EXIF's orientation is ignored by all."""
    forms = JPEG if suffix == "jpg" else PNG
    paths = [save(tmp_path / f"{form}.{suffix}", photograph(71, 93), **how) for form, how in forms.items()]
    framing = CropPolicy("random_crop", 56) if name in FRAMED else CropPolicy("resize", 56)
    pixels, _ = made(name, photo_source(paths, framing), tmp_path).__getitems__(batch(list(range(len(paths)))))
    for photo, path in enumerate(paths):
        wanted, resized = expected(path, framing, photo, 0)
        if suffix == "png" and not resized:
            np.testing.assert_array_equal(pixels[photo].numpy(), wanted)
        require_like(name, pixels[photo].numpy(), wanted, resized=resized)


@pytest.mark.parametrize("name", PHOTO_LOADERS)
def test_the_content_tells_the_format(name: str, tmp_path: Path) -> None:
    """ImageNet holds a PNG whose name ends with JPEG."""
    image = photograph(40, 40)
    save(tmp_path / "photo.png", image)
    path = tmp_path / "photo.JPEG"
    (tmp_path / "photo.png").rename(path)
    pixels, _ = made(name, photo_source([str(path)], CropPolicy("resize", 40)), tmp_path)[0]
    np.testing.assert_array_equal(pixels.numpy(), np.moveaxis(np.asarray(image), -1, 0))


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("name", PHOTO_LOADERS)
def test_an_unreadable_photo_is_named(
    name: str, suffix: str, kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good, framing = save(tmp_path / f"good.{suffix}", photograph(64, 80)), CropPolicy("resize", 32)
    made(name, photo_source([good], framing), tmp_path)[0]
    bad = damaged(tmp_path / f"bad.{suffix}", Path(good).read_bytes(), kind)
    capfd.readouterr()
    text = refusal(lambda: made(name, photo_source([good, bad], framing), tmp_path).__getitems__(batch([0, 1])))
    assert f"{bad} cannot be read" in text
    if name != "packed":  # which draws a progress bar
        assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", PHOTO_LOADERS)
def test_a_png_with_other_bytes_in_its_pixels_is_refused_and_crashes_nothing(name: str, tmp_path: Path) -> None:
    path = Path(save(tmp_path / "bad.png", photograph(64, 80)))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    text = refusal(lambda: made(name, photo_source([str(path)], CropPolicy("resize", 32)), tmp_path)[0])
    assert f"{path} cannot be read" in text


SIZES = {"random_crop": 128, "random_resized_crop": 224, "resize": 224}


@kinds(*(CropPolicy(kind, size, random=True, seed=1) for kind, size in SIZES.items()))
def test_ffmpeg_differs_by_less_than_a_level(framing: CropPolicy, tmp_path: Path) -> None:
    """On photos as a camera's: 4:2:0, real ones where there are any."""
    paths = [str(path) for path in sorted((DATA / "photos").glob("*.jpg"))[::10]] or [
        save(tmp_path / f"{seed}.jpg", photograph(533, 800, seed), quality=90) for seed in range(8)
    ]
    pixels, _ = made("spdl", photo_source(paths, framing), tmp_path).__getitems__(batch(list(range(len(paths))), 1))
    wanted = [expected(path, framing, photo, 1)[0] for photo, path in enumerate(paths)]
    found = np.abs(pixels.numpy().astype(int) - np.stack(wanted))
    assert 0 < found.mean() < 1
    assert (found > 1).mean() < 0.25


@pytest.mark.parametrize("pixels", [(10_000, 10_000), (20_000, 10_000)], ids=["warned of", "refused"])
def test_pillow_reads_no_photo_that_would_fill_the_memory(pixels: tuple[int, int], tmp_path: Path) -> None:
    """However the process filters warnings."""
    bomb = tmp_path / "bomb.png"
    Image.new("1", pixels).save(bomb)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = PilLoader(scale="device")
        with pytest.raises(DataError, match=rf"bomb\.png cannot be read as a photo \({TOO_LARGE}\)"):
            loader.pixels(str(bomb), lambda height, width: (0, 0, 8, 8), 8)


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small files of many pixels, by their suffix."""
    folder = tmp_path_factory.mktemp("bombs")
    Image.new("L", (10_000, 10_000)).save(folder / "bomb.jpg")
    (folder / "bomb.png").write_bytes(black_png(30_000, 30_000))
    return {suffix: str(folder / f"bomb.{suffix}") for suffix in ("jpg", "png")}


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("name", PHOTO_LOADERS)
def test_no_loader_decodes_a_small_file_of_many_pixels(
    name: str, suffix: str, bombs: dict[str, str], tmp_path: Path
) -> None:
    bomb = bombs[suffix]
    assert Path(bomb).stat().st_size < 2e6
    text = refusal(lambda: made(name, photo_source([bomb], CropPolicy("resize", 8)), tmp_path)[0])
    assert text.startswith(f"{bomb} cannot be read as a photo (it has more than 89,478,485 pixels, ")


def test_pillow_reads_no_format_that_runs_programs(tmp_path: Path) -> None:
    """Encapsulated PostScript is drawn by Ghostscript."""
    path = tmp_path / "photo.jpg"
    photograph(8, 8).save(path, "EPS")
    with pytest.raises(DataError, match=r"photo\.jpg cannot be read as a photo"):
        made("pil", photo_source([str(path)], CropPolicy("resize", 8)), tmp_path)[0]


def test_a_photo_that_ffmpeg_cannot_decode_leaves_no_log_behind() -> None:
    content, loader = BytesIO(), spdl.SpdlLoader(scale="device")
    photograph(64, 64).save(content, "JPEG")
    whole = content.getvalue()
    for place in range(20, len(whole), 7):
        damaged = whole[:place] + bytes([255 - whole[place]]) + whole[place + 1 :]
        loader.decode(damaged, lambda *_: (0, 0, 64, 64), 64)
    assert not list(Path(tempfile.gettempdir()).glob(f"*.log.*.{os.getpid()}"))


TERMINATED = """
import os, signal, sys
from strobe.app.loaders.spdl import SpdlLoader
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
SpdlLoader(scale="device")
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_spdl_leaves_requests_to_end_to_us() -> None:
    assert ended(begin("-c", TERMINATED, PYTHONPATH=str(ROOT / "src")), 7) == ""


def imported_of(package: str) -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == package]


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        ([f"spdl.io.lib._spdl_ffmpeg{version}" for version in range(4, 20)], "sudo apt-get install ffmpeg"),
        (["spdl", "spdl.io"], "pip install 'spdl==0.8.*'"),
    ],
    ids=["FFmpeg", "SPDL"],
)
def test_what_spdl_needs_is_said(missing: list[str], remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in imported_of("spdl"):  # as in a new process
        monkeypatch.delitem(sys.modules, name)
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    spdl._library.cache_clear()
    said = refusal(lambda: spdl.SpdlLoader(scale="device"))
    for name in imported_of("spdl"):  # none of this half-loaded package stays beside the modules that come back
        del sys.modules[name]
    assert said.startswith("loader=spdl needs")
    assert said.endswith(remedy)
