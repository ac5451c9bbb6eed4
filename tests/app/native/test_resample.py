"""A box of another size becomes a square as Pillow's filter makes it, and nearly so when libjpeg shrinks it first."""

from collections.abc import Callable
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import resize

from strobe.app.loaders.crop_policy import CropPolicy
from strobe.app.native.files import Files
from strobe.app.native.photos import read_photos
from support.jpegs import by_pillow, needs_compiler, picture, tensor, whole
from support.places import DATA

pytestmark = needs_compiler()
BILINEAR = Image.Resampling.BILINEAR


@pytest.fixture(scope="module")
def contents() -> list[bytes]:
    """Real photos where there are some."""
    found = sorted((DATA / "photos").glob("*.jpg"))[::6]
    return [path.read_bytes() for path in found] or [by_pillow(picture(533, 800, seed=seed)) for seed in range(4)]


def square(photo: bytes, box: tuple[int, int, int, int], side: int, scaled: bool = False) -> Tensor:
    out = torch.empty(1, 3, side, side, dtype=torch.uint8)
    held = Files(tensor(photo), torch.tensor([len(photo)]))
    assert read_photos(out, held, torch.tensor([box]), scaled=scaled, threads=1).tolist() == [0]
    return out[0]


def part(photo: bytes, box: tuple[int, int, int, int]) -> Image.Image:
    top, left, height, width = box
    with Image.open(BytesIO(photo)) as image:
        return image.convert("RGB").crop((left, top, left + width, top + height))


def pixels(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def rows_first(image: Image.Image, side: int) -> Tensor:
    """In two steps, because Pillow 13 chooses the order by the sizes."""
    return pixels(image.resize((side, image.height), BILINEAR).resize((side, side), BILINEAR))


def some_boxes(height: int, width: int, count: int) -> list[tuple[int, int, int, int]]:
    rng = np.random.default_rng(0)
    sizes = [(int(rng.integers(1, height + 1)), int(rng.integers(1, width + 1))) for _ in range(count)]
    return [
        (int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1)), tall, wide) for tall, wide in sizes
    ]


@pytest.mark.parametrize("side", [1, 2, 31, 64, 130, 224])
def test_equals_pillow(contents: list[bytes], side: int) -> None:
    for photo in contents[:4]:
        for box in some_boxes(533, 800, 6):
            assert torch.equal(square(photo, box, side), rows_first(part(photo, box), side))


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (3, 2), (64, 200), (200, 64), (65, 63)], ids=str)
def test_equals_pillow_for_whole_small_photos(shape: tuple[int, int]) -> None:
    photo, box = by_pillow(picture(*shape)), (0, 0, *shape)
    assert torch.equal(square(photo, box, 64), rows_first(part(photo, box), 64))


def test_differs_from_one_resize_of_any_pillow_by_one_level_at_most(contents: list[bytes]) -> None:
    for box in some_boxes(533, 800, 20):
        ours, theirs = square(contents[0], box, 128), pixels(part(contents[0], box).resize((128, 128), BILINEAR))
        assert (ours.int() - theirs.int()).abs().max() <= 1


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("shrunk", [2, 4, 8])
def test_what_libjpeg_shrinks_equals_pillows_draft(shrunk: int, subsampling: str) -> None:
    """Boxes that begin and end between units, of just the size that is wanted: nothing is resampled after that."""
    photo = by_pillow(picture(240, 320), subsampling=subsampling)
    with Image.open(BytesIO(photo)) as image:
        image.draft("RGB", (320 // shrunk, 240 // shrunk))
        assert image.size == (320 // shrunk, 240 // shrunk)
        small = pixels(image)
    for top, left, size in [(0, 0, 64), (0, 0, 240), (8, 24, 80), (72, 200, 120), (176, 256, 64), (104, 8, 8)]:
        found, side = square(photo, (top, left, size, size), size // shrunk, scaled=True), size // shrunk
        y, x = top // shrunk, left // shrunk
        assert torch.equal(found, small[:, y : y + side, x : x + side]), (top, left, size)


def random_resized_crops(contents: list[bytes]) -> list[tuple[bytes, tuple[int, int, int, int]]]:
    """Some of torchvision's transform of this name, with the same boxes."""
    framing, cases = CropPolicy("random_resized_crop", 224, random=True), []
    for number, photo in enumerate(contents):
        size = np.array([whole(photo).shape[1:]])
        boxes = [framing.boxes(size, np.array([number]), epoch)[0].tolist() for epoch in range(3)]
        cases += [(photo, (top, left, height, width)) for top, left, height, width in boxes]
    return cases


def differences(contents: list[bytes], make: Callable[[bytes, tuple[int, int, int, int]], Tensor]) -> Tensor:
    found = []
    for photo, box in random_resized_crops(contents):
        theirs = resize(pixels(part(photo, box)), [224, 224], antialias=True)
        found.append((make(photo, box).int() - theirs.int()).abs())
    return torch.stack(found).float()


def test_without_scaling_equals_torchvision_but_for_rounding(contents: list[bytes]) -> None:
    assert differences(contents, lambda photo, box: square(photo, box, 224)).max() <= 2


def test_with_scaling_is_near_torchvision(contents: list[bytes]) -> None:
    """Mean and greatest differences are those that read_photos documents."""
    if not any((DATA / "photos").glob("*.jpg")):
        pytest.skip("intended: they are documented for real photos, and STROBE_DATA holds none")
    difference = differences(contents, lambda photo, box: square(photo, box, 224, scaled=True))
    print(f"mean {difference.mean():.3f}, greatest {difference.max():.0f}")
    assert 0 < difference.mean() < 1.5
    assert difference.mean(dim=(1, 2, 3)).max() < 6


@pytest.mark.parametrize("axis", [0, 1])
def test_with_scaling_the_picture_does_not_move(axis: int) -> None:
    """A slope that rises and one that falls: rounding changes both alike, a shift each the other way.

    A wrong centre would move it by 3.5, 1.5 or 0.5 pixels at 1/8, 2/8 and 4/8.
    """
    rise = np.mgrid[:256, :256][axis]  # one level a pixel
    photo = by_pillow(np.stack([rise, 255 - rise, rise], axis=-1).astype(np.uint8), quality=98, subsampling="4:4:4")
    for box in [(0, 0, 256, 256), (13, 77, 170, 163), (21, 3, 216, 230), (5, 5, 77, 100)]:
        for side in (20, 32, 50, 72):
            difference = square(photo, box, side, scaled=True).float() - square(photo, box, side).float()
            rising, falling, _ = difference.mean(dim=(1, 2))
            pixels_moved = float(rising - falling) / 2
            assert abs(pixels_moved) < 0.25, (box, side)
