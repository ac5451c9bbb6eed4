"""Batches on their device: standardised in memory that is used again, never over one that somebody has; then augmented.

Each augmentation gives only its own forms of an image, all of them, by the generator alone.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from lightning import LightningDataModule
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

from strobe.app.build.trainer import build_trainer
from strobe.app.data import augment
from strobe.app.data.augment import dihedral, flip, shift
from strobe.app.data.base import ImageData
from strobe.probe.model import ALONE
from support.composing import composed_data
from support.fitting import Model

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


STATISTICS = torch.tensor([0.3, 0.5, 0.1]), torch.tensor([0.2, 0.05, 0.4])


@pytest.fixture
def data() -> ImageData:
    made: ImageData = composed_data("data=sample")
    made.mean, made.std = STATISTICS
    return made


def reference(pixels: Tensor, full_scale: float) -> Tensor:
    mean, std = (value.double().view(-1, 1, 1) for value in STATISTICS)
    return ((pixels.double() / full_scale).clamp(0, 1) - mean) / std


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int32])
@pytest.mark.parametrize(("full_scale", "count"), [(100.0, 1), (255.0, 7), (4000.0, 300)])
def test_integers_become_what_the_formula_says(
    data: ImageData, dtype: torch.dtype, full_scale: float, count: int
) -> None:
    data.full_scale = full_scale
    highest = 256 if dtype == torch.uint8 else 6000
    pixels = torch.randint(highest, (count, 3, 32, 32), generator=torch.Generator().manual_seed(1)).to(dtype)
    before = pixels.clone()
    images = data.normalise(pixels)
    assert images.dtype == torch.float32
    assert images.is_contiguous()
    expected = reference(pixels.to(torch.int64), full_scale)
    assert (images.double() - expected).abs().max() <= 1e-6 * expected.abs().max()
    assert torch.equal(pixels.view(torch.uint8), before.view(torch.uint8))


def test_floats_change_in_place(data: ImageData) -> None:
    pixels = torch.rand(5, 3, 16, 16)
    expected = reference(pixels, 1.0)
    images = data.normalise(pixels)
    assert images.data_ptr() == pixels.data_ptr()
    assert (images.double() - expected).abs().max() < 1e-5


def test_memory_is_used_again_and_no_batch_overwritten(data: ImageData) -> None:
    pixels = torch.full((8, 3, 32, 32), 9, dtype=torch.uint16)
    places = {data.normalise(pixels).data_ptr() for _ in range(50)}
    assert len(places) == 1
    images = data.normalise(pixels)
    for _ in range(50):  # as training does: the last batch is let go when the next one is there
        images = data.normalise(pixels)
        places.add(images.data_ptr())
    assert len(places) <= 3
    kept, copies = [], []
    for value in range(5):
        kept.append(data.normalise(torch.full_like(pixels, value)))
        copies.append(kept[-1].clone())
    assert all(torch.equal(image, copy) for image, copy in zip(kept, copies, strict=True))


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_backward_pass_that_comes_late_sees_its_own_batch(data: ImageData, channels_last: bool) -> None:
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(3, 2, 3)

    def gradient(between: int) -> Tensor:
        convolution.zero_grad()
        images = data.normalise(torch.full((4, 3, 16, 16), 700, dtype=torch.uint16))
        if channels_last:
            images = images.to(memory_format=torch.channels_last)
        loss = convolution(images).square().sum()
        del images
        for value in range(between):
            data.normalise(torch.full((4, 3, 16, 16), value, dtype=torch.uint16))
        loss.backward()
        assert convolution.weight.grad is not None
        return convolution.weight.grad.clone()

    assert torch.equal(gradient(between=0), gradient(between=6))


FLOATS = torch.tensor([0.2, 0.2001, 0.3, 0.4])


class Noting(LightningDataModule):
    """Floats, as from a loader that scales; what of them comes to the device is kept, and training ends there."""

    def train_dataloader(self) -> DataLoader[Tensor]:
        return DataLoader([FLOATS], batch_size=None)  # type: ignore[arg-type]

    def val_dataloader(self) -> list[Tensor]:
        return []

    def on_after_batch_transfer(self, batch: Tensor, dataloader_idx: int) -> Tensor:
        self.came = batch
        raise EOFError


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.parametrize("precision", ["bf16-true", "64-true"])
def test_images_keep_their_digits_until_they_are_standardised(precision: str) -> None:
    data = Noting()
    with suppress(EOFError):
        build_trainer(ALONE | {"accelerator": "cpu", "precision": precision}).fit(Model(), datamodule=data)
    assert torch.equal(data.came, FLOATS)
