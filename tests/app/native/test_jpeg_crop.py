"""A crop equals, bit for bit, the same part of the whole photo, wherever it lies."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.io import ImageReadMode, decode_jpeg

from strobe.app.native.photos import decode_crop_jpeg
from support.jpegs import CODINGS, SAMPLINGS, built, by_pillow, encoded, needs_compiler, picture, tensor, whole
from support.places import DATA

pytestmark = needs_compiler()
BOXES = [(1, 1), (2, 3), (16, 16), (17, 9), (30, 20), (53, 20), (20, 37), (53, 37)]


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("encode_jpeg", tmp_path_factory.mktemp("encoder"))


def assert_every_crop_exact(photo: bytes, boxes: list[tuple[int, int]], stride: int = 1, note: str = "") -> None:
    data, expected = tensor(photo), whole(photo)
    _, height, width = expected.shape
    wrong = [
        (top, left, tall, wide)
        for tall, wide in boxes
        for top in range(0, height - tall + 1, stride)
        for left in range(0, width - wide + 1, stride)
        if not torch.equal(
            decode_crop_jpeg(data, top, left, tall, wide), expected[:, top : top + tall, left : left + wide]
        )
    ]
    assert not wrong, note


@pytest.mark.filterwarnings("ignore:The image decoding and encoding capabilities of TorchVision:DeprecationWarning")
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_at_every_place(subsampling: str, progressive: bool) -> None:
    photo = by_pillow(picture(53, 37), quality=90, subsampling=subsampling, progressive=progressive)
    assert torch.equal(whole(photo), decode_jpeg(tensor(photo), ImageReadMode.RGB))
    assert_every_crop_exact(photo, BOXES)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_of_every_sampling_and_coding(encoder: Path, sampling: str) -> None:
    for options in CODINGS:
        photo = encoded(encoder, picture(53, 69), SAMPLINGS[sampling], options)
        assert_every_crop_exact(photo, [(1, 1), (17, 9), (53, 20), (20, 69), (53, 69)], stride=5, note=options)


@pytest.mark.parametrize("sampling", ["11", "22", "21"])
def test_of_grey(encoder: Path, sampling: str) -> None:
    for options in CODINGS:
        photo = encoded(encoder, picture(53, 37, 1), sampling, options)
        assert_every_crop_exact(photo, [(1, 1), (17, 9), (53, 37)], stride=3, note=options)


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (2, 2), (3, 33), (17, 16), (16, 17)], ids=str)
def test_of_narrow_photos(encoder: Path, shape: tuple[int, int]) -> None:
    for number, sampling in enumerate(["444", "422", "420", "440", "411"]):
        for options in (*CODINGS[number::4], "p"):
            photo = encoded(encoder, picture(*shape), SAMPLINGS[sampling], options)
            boxes = [(1, 1), (1, min(5, shape[1])), (min(5, shape[0]), 1), shape]
            assert_every_crop_exact(photo, boxes, note=f"{sampling} {options}")


def test_of_photos() -> None:
    """Real ones where there are some."""
    found = sorted((DATA / "photos").glob("*.jpg"))[::4]
    contents = [path.read_bytes() for path in found] or [by_pillow(picture(533, 800, seed=seed)) for seed in range(3)]
    rng = np.random.default_rng(0)
    for photo in contents:
        data, expected = tensor(photo), whole(photo)
        height, width = expected.shape[1:]
        for _ in range(8):
            tall, wide = int(rng.integers(1, height + 1)), int(rng.integers(1, width + 1))
            top, left = int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1))
            part = decode_crop_jpeg(data, top, left, tall, wide)
            assert torch.equal(part, expected[:, top : top + tall, left : left + wide])


def test_no_table_is_left_from_the_photo_before() -> None:
    photo = by_pillow(picture(20, 30))
    quantisation = re.compile(rb"\xff\xdb\x00\x43.{65}", re.DOTALL)
    assert len(quantisation.findall(photo)) == 2
    decode_crop_jpeg(tensor(photo), 0, 0, 20, 30)
    with pytest.raises(RuntimeError, match="Quantization table 0x00 was not defined"):
        decode_crop_jpeg(tensor(quantisation.sub(b"", photo)), 0, 0, 20, 30)


@pytest.mark.parametrize(
    ("photo", "message"),
    [
        (b"", "Premature end of input file"),
        (b"GIF89a" + bytes(50), "Not a JPEG file"),
        (by_pillow(picture(40, 40))[:-400], "Premature end of input file"),
        (by_pillow(picture(40, 40, 4)), "neither grey nor of three colours"),
    ],
    ids=["empty", "gif", "cut off", "cmyk"],
)
def test_others_are_refused(photo: bytes, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=message):
        decode_crop_jpeg(tensor(photo) if photo else torch.empty(0, dtype=torch.uint8), 0, 0, 40, 40)
    assert capfd.readouterr() == ("", "")


def scans(photo: bytes) -> list[int]:
    """Where scans begin."""
    return [found.start() for found in re.finditer(rb"\xff\xda", photo)]


def test_a_photo_that_lacks_scans_is_left_to_others() -> None:
    """How libjpeg smooths it depends on its version, and Pillow brings one of its own."""
    photo = by_pillow(picture(90, 130), progressive=True)
    for count in range(1, len(scans(photo))):
        cut = photo[: scans(photo)[count]] + b"\xff\xd9"
        assert whole(cut).shape == (3, 90, 130)
        for box in ((0, 0, 90, 130), (40, 50, 8, 8)):
            with pytest.raises(RuntimeError, match="It lacks scans"):
                decode_crop_jpeg(tensor(cut), *box)
    assert torch.equal(decode_crop_jpeg(tensor(photo), 40, 50, 8, 8), whole(photo)[:, 40:48, 50:58])


@pytest.mark.parametrize(("more", "why"), [(80, "damaged"), (100, "too many scans")])
def test_scans_that_say_the_same_again_are_refused(more: int, why: str) -> None:
    photo = by_pillow(picture(40, 40), progressive=True)
    last = scans(photo)[-1]
    many = photo[:-2] + photo[last:-2] * more + photo[-2:]  # refines the same bits over and over
    with pytest.raises(RuntimeError, match=why):
        decode_crop_jpeg(tensor(many), 0, 0, 40, 40)


def test_garbled_data_is_refused() -> None:
    photo = by_pillow(picture(400, 400))
    middle = len(photo) // 2
    garbled = (
        photo[:middle] + bytes((7 * byte + 13) % 256 for byte in photo[middle : middle + 400]) + photo[middle + 400 :]
    )
    with pytest.raises(OSError, match="broken data stream"):
        whole(garbled)
    with pytest.raises(RuntimeError, match="damaged"):
        decode_crop_jpeg(tensor(garbled), 0, 0, 400, 400)


def test_cut_off_below_the_crop_is_not_noticed() -> None:
    photo = by_pillow(picture(400, 40))
    assert torch.equal(decode_crop_jpeg(tensor(photo[: len(photo) // 2]), 8, 8, 30, 30), whole(photo)[:, 8:38, 8:38])


OUTSIDE = [(0, 0, 41, 1), (0, 0, 1, 31), (40, 0, 1, 1), (0, 30, 1, 1), (-1, 0, 1, 1), (0, -1, 1, 1), (2**62, 0, 1, 1)]
SIZELESS = [(0, 0, 0, 1), (0, 0, 1, 0), (0, 0, -5, -5), (0, 0, 2**62, 2**62)]


@pytest.mark.parametrize("box", [*OUTSIDE, *SIZELESS])
def test_a_box_that_does_not_lie_within(box: tuple[int, int, int, int]) -> None:
    with pytest.raises(RuntimeError, match="a box of" if box in SIZELESS else "does not lie within"):
        decode_crop_jpeg(tensor(by_pillow(picture(40, 30))), *box)


@pytest.mark.parametrize("shape", [(65000, 65000), (16000, 16000)])
@pytest.mark.parametrize("progressive", [False, True])
def test_sizes_that_nobody_photographs(shape: tuple[int, int], progressive: bool) -> None:
    photo = bytearray(by_pillow(picture(40, 40), progressive=progressive))
    at = photo.index(b"\xff\xc2" if progressive else b"\xff\xc0") + 5
    photo[at : at + 4] = shape[0].to_bytes(2, "big") + shape[1].to_bytes(2, "big")
    with pytest.raises(RuntimeError, match=r"too many pixels|more pixels than"):
        decode_crop_jpeg(tensor(bytes(photo)), 0, 0, 8, 8)
