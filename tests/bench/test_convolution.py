"""Every implementation computes what SciPy does, whatever the sizes and the kernel."""

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
DIMENSIONS = [((9,), (4,)), ((7, 5), (3, 2)), ((5, 4, 6), (3, 2, 1)), ((3, 4, 2, 5), (2, 3, 3, 2))]


def draw(shape: tuple[int, ...], dtype: type = np.float64, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tolerance(image: Array, kernel: Array) -> float:
    """How far rounding may go.

    A sum of m products in any order is off by m rounding errors of the sum of their sizes at most, which is no more
    than the product of the norms of image and kernel; an FFT by some log2 N, less than 16 here, of that product.
    """
    norms = np.linalg.norm(image.astype(np.float64)) * np.linalg.norm(kernel.astype(np.float64))
    return float((kernel.size + 16) * np.finfo(image.dtype).eps * norms)


def check(name: str, image: Array, kernel: Array) -> None:
    """Hold an implementation against SciPy in float64."""
    before = image.copy(), kernel.copy()
    found = IMPLEMENTATIONS[name](image, kernel)
    assert (found.shape, found.dtype) == (image.shape, image.dtype)
    expected = convolve2d(*(array.astype(np.float64) for array in (image, kernel)), mode="same")
    said = f"{image.shape} {kernel.shape}"
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance(image, kernel), err_msg=said)
    np.testing.assert_array_equal(image, before[0])
    np.testing.assert_array_equal(kernel, before[1])


@pytest.mark.parametrize("name", NAMES)
def test_an_implementation_equals_scipy(name: str) -> None:
    dtypes = itertools.cycle((np.float32, np.float64, np.float64))  # each kernel meets both
    for (seed, shape), reach in itertools.product(enumerate(IMAGES), KERNELS):
        dtype = next(dtypes)
        check(name, draw(shape, dtype, seed), draw(reach, dtype, seed + 1))


@pytest.mark.parametrize("name", NAMES)
def test_views_are_as_good_as_arrays(name: str) -> None:
    image, kernel = draw((10, 14)), draw((6, 4))
    image.flags.writeable = kernel.flags.writeable = False
    check(name, image, kernel)
    check(name, image.T, kernel.T)
    check(name, image[::-2, ::3], kernel[:, ::-1])
    check(name, image[3:9], kernel[::2, 1:][:, :1])


@pytest.mark.parametrize(("shape", "reach"), DIMENSIONS, ids=map(str, DIMENSIONS))
def test_im2col_works_in_any_dimension(shape: tuple[int, ...], reach: tuple[int, ...]) -> None:
    image, kernel = draw(shape), draw(reach, seed=1)
    whole = padded(image, reach)
    windows = np.lib.stride_tricks.sliding_window_view(whole, reach)
    np.testing.assert_array_equal(im2col_recursive(whole, reach), windows)
    np.testing.assert_array_equal(im2col_naive(whole, reach), windows)
    # ndimage puts the middle of an even side one element further on
    origin = [-1 if side % 2 == 0 else 0 for side in reach]
    expected = ndimage.convolve(image, kernel, mode="constant", origin=origin)
    found = by_im2col(im2col_recursive, whole, kernel)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance(image, kernel))


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
