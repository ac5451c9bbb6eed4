"""Batches are standardised in memory that is used again, exactly, and never over one that somebody has."""

import pytest
import torch
from torch import Tensor

from strobe.app.data.base import ImageData
from support.composing import composed_data

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
