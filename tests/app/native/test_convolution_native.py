"""The operator of the convolution study: what it computes, and what it refuses."""

import numpy as np
import pytest
import torch
from scipy.signal import convolve2d

from strobe.app.native.build import load
from strobe.app.native.convolution import LIBRARY, convolve
from support.building import needs_compiler

pytestmark = needs_compiler()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_equals_scipy_about_the_width_of_a_block(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    for width in (*range(1, 36), 47, 48, 49, 100):
        for reach in ((1, 1), (3, 3), (2, 5), (4, width)):
            if reach[1] > width:
                continue
            image = torch.randn((5, width), generator=draw, dtype=dtype)
            kernel = torch.randn(reach, generator=draw, dtype=dtype)
            found = convolve(image, kernel)
            assert found.dtype == dtype
            expected = convolve2d(image.double().numpy(), kernel.double().numpy(), mode="valid")
            # a sum of m products is off by m rounding errors of the sum of their sizes at most
            sizes = convolve2d(image.abs().double().numpy(), kernel.abs().double().numpy(), mode="valid")
            assert found.shape == expected.shape
            assert (np.abs(found.double().numpy() - expected) <= kernel.numel() * torch.finfo(dtype).eps * sizes).all()


def test_it_writes_nothing_but_its_result() -> None:
    memory = torch.full((9, 40), 7.0)
    image, kernel = memory[2:7], torch.ones(2, 3)
    assert (convolve(image, kernel) == 42).all()
    assert (memory == 7).all()
    assert (kernel == 1).all()


def test_what_is_not_a_number_stays_where_it_is() -> None:
    image = torch.zeros(6, 40)
    image[3, 20] = torch.nan
    assert convolve(image, torch.ones(3, 3)).isnan().nonzero().tolist() == [
        [row, column] for row in (1, 2, 3) for column in (18, 19, 20)
    ]


WRONG = {
    "type": ({"image": torch.ones(4, 4, dtype=torch.int32)}, "image must be of type Float or Double, not Int"),
    "half": ({"image": torch.ones(4, 4, dtype=torch.float16)}, "image must be of type Float or Double, not Half"),
    "two types": ({"kernel": torch.ones(2, 2, dtype=torch.float64)}, "kernel must be a contiguous tensor"),
    "strides": ({"image": torch.ones(4, 8)[:, ::2]}, "image must be a contiguous tensor"),
    "turned kernel": ({"kernel": torch.ones(2, 3).T}, "kernel must be a contiguous tensor"),
    "dimensions": ({"image": torch.ones(1, 4, 4)}, "image must be a contiguous tensor of 2 dimensions"),
    "a kernel of one dimension": ({"kernel": torch.ones(2)}, "kernel must be a contiguous tensor of 2 dimensions"),
    "a high kernel": ({"kernel": torch.ones(5, 1)}, "the kernel's side of 5 must be at least 1 and at most"),
    "a wide kernel": ({"kernel": torch.ones(1, 5)}, "the kernel's side of 5 must be at least 1 and at most"),
    "an empty kernel": ({"kernel": torch.ones(0, 2)}, "the kernel's side of 0 must be at least 1"),
    "an empty image": ({"image": torch.ones(4, 0)}, "the kernel's side of 2 must be .* at most the image's, 0"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_arguments_are_checked(change: dict[str, torch.Tensor], message: str) -> None:
    arguments = {"image": torch.ones(4, 4), "kernel": torch.ones(2, 2)}
    assert convolve(**arguments).tolist() == [[4.0] * 3] * 3
    with pytest.raises(RuntimeError, match=message):
        convolve(**{**arguments, **change})


def test_the_operator_keeps_torchs_rules() -> None:
    load(LIBRARY)
    torch.library.opcheck(torch.ops.strobe.convolve.default, (torch.randn(6, 20), torch.randn(3, 2)))


def test_shape_and_type_are_known_without_data() -> None:
    load(LIBRARY)
    with torch._subclasses.FakeTensorMode():
        found = torch.ops.strobe.convolve(torch.empty(9, 8, dtype=torch.float64), torch.empty(3, 2).double())
    assert (tuple(found.shape), found.dtype) == ((7, 7), torch.float64)
