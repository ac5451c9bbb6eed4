"""Every implementation computes what SciPy does, whatever the sizes, the kernel and what lies beyond the border."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage
from scipy.signal import convolve2d

from strobe.app.native import convolution
from strobe.app.native.build import missing
from strobe.bench.suites.convolution import implementations
from strobe.bench.suites.convolution.implementations import (
    IMPLEMENTATIONS,
    Border,
    by_im2col,
    im2col_naive,
    im2col_recursive,
    padded,
)

Array = NDArray[np.floating]

LACKING = missing(convolution.LIBRARY)
NAMES = [
    pytest.param(name, marks=pytest.mark.skipif(name == "native" and LACKING is not None, reason=f"{LACKING}"))
    for name in IMPLEMENTATIONS
]
IMAGES = [(1, 1), (1, 7), (6, 1), (2, 2), (5, 12), (17, 16)]
KERNELS = [(1, 1), (3, 3), (2, 2), (1, 4), (3, 2), (9, 8)]  # the last larger than most images
BORDERS: list[tuple[Border, float, str]] = [
    ("fill", 0.0, "fill"),
    ("fill", -2.5, "fill"),
    ("symmetric", 0.0, "symm"),
    ("wrap", 0.0, "wrap"),
]
DIMENSIONS = [((9,), (4,)), ((7, 5), (3, 2)), ((5, 4, 6), (3, 2, 1)), ((3, 4, 2, 5), (2, 3, 3, 2))]


def draw(shape: tuple[int, ...], dtype: type = np.float64, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tolerance(image: Array, kernel: Array, border: Border, fill: float) -> float:
    """How far rounding may go.

    A sum of m products in any order is off by m rounding errors of the sum of their sizes at most, which is no more
    than the product of the norms of image and kernel; an FFT by some log2 N, less than 16 here, of that product.
    """
    whole = padded(image, kernel.shape, border=border, fill=fill)
    norms = np.linalg.norm(whole.astype(np.float64)) * np.linalg.norm(kernel.astype(np.float64))
    return float((kernel.size + 16) * np.finfo(image.dtype).eps * norms)


def check(name: str, image: Array, kernel: Array, beyond: tuple[Border, float, str] = BORDERS[0]) -> None:
    """Hold an implementation against SciPy in float64, with SciPy's own borders."""
    border, fill, mode = beyond
    before = image.copy(), kernel.copy()
    found = IMPLEMENTATIONS[name](image, kernel, border=border, fill=fill)
    assert (found.shape, found.dtype) == (image.shape, image.dtype)
    arrays = (array.astype(np.float64) for array in (image, kernel))
    expected = convolve2d(*arrays, mode="same", boundary=mode, fillvalue=fill)
    close, said = tolerance(image, kernel, border, fill), f"{image.shape} {kernel.shape} {border} {fill}"
    np.testing.assert_allclose(found, expected, rtol=0, atol=close, err_msg=said)
    np.testing.assert_array_equal(image, before[0])
    np.testing.assert_array_equal(kernel, before[1])


@pytest.mark.parametrize("name", NAMES)
def test_an_implementation_equals_scipy(name: str) -> None:
    """Every image meets every kernel, every border and both types; not all four at once."""
    borders = itertools.cycle(itertools.product(BORDERS, (np.float32, np.float64)))
    for (seed, shape), (number, reach) in itertools.product(enumerate(IMAGES), enumerate(KERNELS)):
        for _ in range(1 + (number % 2)):  # an odd number for each image: the pairs differ from image to image
            border, dtype = next(borders)
            check(name, draw(shape, dtype, seed), draw(reach, dtype, seed + 1), border)
    for border in BORDERS:
        check(name, draw((7, 6), np.float32), draw((3, 4), np.float32, 1), border)


@pytest.mark.parametrize("name", NAMES)
def test_views_are_as_good_as_arrays(name: str) -> None:
    image, kernel = draw((10, 14)), draw((6, 4))
    image.flags.writeable = kernel.flags.writeable = False
    check(name, image, kernel, BORDERS[1])
    check(name, image.T, kernel.T)
    check(name, image[::-2, ::3], kernel[:, ::-1])
    check(name, image[3:9], kernel[::2, 1:][:, :1])


@pytest.mark.parametrize(("shape", "reach"), DIMENSIONS, ids=map(str, DIMENSIONS))
def test_im2col_works_in_any_dimension(shape: tuple[int, ...], reach: tuple[int, ...]) -> None:
    image, kernel = draw(shape), draw(reach, seed=1)
    whole = padded(image, reach)
    expected = np.lib.stride_tricks.sliding_window_view(whole, reach)
    np.testing.assert_array_equal(im2col_recursive(whole, reach), expected)
    np.testing.assert_array_equal(im2col_naive(whole, reach), expected)
    # ndimage puts the middle of an even side one element further on
    origin = [-1 if side % 2 == 0 else 0 for side in reach]
    for border, mode, fill in (("fill", "constant", 1.5), ("symmetric", "reflect", 0.0), ("wrap", "grid-wrap", 0.0)):
        found = by_im2col(im2col_recursive, padded(image, reach, border=border, fill=fill), kernel)
        expected = ndimage.convolve(image, kernel, mode=mode, cval=fill, origin=origin)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance(image, kernel, "wrap", 0.0))


def test_the_recursive_one_computes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []
    inner = implementations.im2col_recursive

    def counting(image: Array, kernel_shape: tuple[int, ...]) -> Array:
        made.append(image.shape)
        return inner(image, kernel_shape)

    monkeypatch.setattr(implementations, "im2col_recursive", counting)
    counting(draw((6, 5, 4)), (3, 3, 3))
    assert made.count((5, 4)) == 6  # one for each plane, not for each plane and place in the kernel
    assert made.count((4,)) == 6 * 5
    assert len(made) == 1 + 6 + 6 * 5


def test_indices_are_exact_where_floats_are_not() -> None:
    large = 2**53 + 1
    assert list(implementations._get_indices(large, (2**50, 16))) == [large // 16, 1]


WRONG = {
    "an empty image": (np.ones((0, 3)), np.ones((1, 1)), r"image of shape \(0, 3\) is empty"),
    "an empty kernel": (np.ones((3, 3)), np.ones((3, 0)), r"kernel of shape \(3, 0\) is empty"),
    "an image of three dimensions": (np.ones((1, 3, 3)), np.ones((1, 1)), "image .* has 3 dimensions; it must have 2"),
    "integers": (np.ones((3, 3), dtype=int), np.ones((1, 1)), "image is of type int64; convert it"),
    "two types": (np.ones((3, 3)), np.ones((1, 1), dtype=np.float32), "image is float64 and the kernel float32"),
}


@pytest.mark.parametrize(("image", "kernel", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_convolved_is_refused(image: Array, kernel: Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IMPLEMENTATIONS["window sums"](image, kernel)


def test_an_unknown_border_is_refused() -> None:
    with pytest.raises(ValueError, match="border=symm is not a choice; choose one of fill, symmetric, wrap"):
        padded(np.ones((3, 3)), (1, 1), border="symm")
