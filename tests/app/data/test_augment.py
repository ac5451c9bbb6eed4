"""Each augmentation gives only its own forms of an image, all of them, by the generator alone."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from strobe.app.data import augment
from strobe.app.data.augment import dihedral, flip, shift

Change = Callable[..., Tensor]
Forms = Callable[[Tensor], Tensor]


def flips(images: Tensor) -> Tensor:
    """The allowed forms of each image, (forms, N, C, H, W)."""
    return torch.stack([images, images.flip(-1)])


def symmetries(images: Tensor) -> Tensor:
    turns = [images.rot90(quarter, (-2, -1)) for quarter in range(4)]
    return torch.stack([form for turn in turns for form in (turn, turn.flip(-1))])


def crops(images: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    padded = F.pad(images, (4, 4, 4, 4))
    return padded.unfold(2, height, 1).unfold(3, width, 1).permute(2, 3, 0, 1, 4, 5).flatten(0, 1)


CHANGES = pytest.mark.parametrize("change", [flip, dihedral, shift])


def numbered(count: int, width: int = 6) -> Tensor:
    """Two-channel images, six pixels high, in which no number occurs twice, nor zero."""
    return torch.arange(1.0, 1 + count * 12 * width).reshape(count, 2, 6, width)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("change", "forms", "count", "width"), [(flip, flips, 2, 7), (dihedral, symmetries, 8, 6), (shift, crops, 81, 7)]
)
def test_each_image_becomes_one_of_its_forms(change: Change, forms: Forms, count: int, width: int) -> None:
    images = numbered(30 * count, width)
    matches = (forms(images) == change(images, seeded(1))).all(dim=(2, 3, 4))
    assert matches.sum(0).tolist() == [1] * len(images)
    frequency = matches.sum(1)
    assert len(frequency) == count
    assert frequency.min() > 10  # 30 expected of each form: images are drawn one by one, and evenly
    assert frequency.max() < 60


@CHANGES
def test_the_generator_alone_decides(change: Change) -> None:
    images = numbered(50)
    torch.manual_seed(1)
    first = change(images, seeded(7))
    torch.manual_seed(2)
    generator = seeded(7)
    assert torch.equal(change(images, generator), first)
    assert not torch.equal(change(images, generator), first)  # the next batch is changed otherwise
    assert not torch.equal(change(images, seeded(8)), first)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": Tensor.clone,
    "channels last": lambda images: images.contiguous(memory_format=torch.channels_last),
    "strided": lambda images: images.repeat_interleave(2, dim=-1)[..., ::2],
    "expanded": lambda images: images[:1].expand(len(images), -1, -1, -1),
}


@CHANGES
@pytest.mark.parametrize("layout", ["contiguous", "channels last"])
def test_the_result_may_take_the_images_place(change: Change, layout: str) -> None:
    given = LAYOUTS[layout](numbered(50))
    expected = change(given, seeded(3))
    assert change(given, seeded(3), out=given) is given
    assert torch.equal(given, expected)


@CHANGES
def test_parts_make_no_difference(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    images = numbered(50)
    whole = change(images, seeded(3))
    monkeypatch.setattr(augment, "CACHED", 7 * images[0].numel())
    assert torch.equal(change(images, seeded(3)), whole)


@CHANGES
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_goes_in_and_stays_as_it_was(change: Change, layout: str) -> None:
    given = LAYOUTS[layout](numbered(50))
    before = given.clone(memory_format=torch.contiguous_format)
    assert torch.equal(change(given, seeded(3)), change(before, seeded(3)))
    assert torch.equal(given, before)
