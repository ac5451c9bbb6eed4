"""Every implementation computes what SciPy does, whatever the sizes, the kernel and what lies beyond the border."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage
from scipy.signal import convolve, convolve2d

from strobe.app.native import convolution
from strobe.app.native.build import missing
from strobe.bench.convolution import im2col
from strobe.bench.convolution.borders import Border, padded
from strobe.bench.convolution.im2col import convolve_nd, im2col_naive, im2col_recursive
from strobe.bench.convolution.implementations import IMPLEMENTATIONS, REFERENCE, Implementation

Array = NDArray[np.floating]

LACKING = missing(convolution.LIBRARY)
NAMES = [
    pytest.param(name, marks=pytest.mark.skipif(name == "native" and LACKING is not None, reason=f"{LACKING}"))
    for name in IMPLEMENTATIONS
]
IMAGES = [(1, 1), (1, 7), (6, 1), (2, 2), (7, 7), (5, 12), (17, 16), (33, 20)]
KERNELS = [(1, 1), (3, 3), (2, 2), (5, 5), (1, 4), (3, 2), (4, 1), (9, 8)]  # the last larger than most images
BORDERS: list[tuple[Border, float, str]] = [
    ("fill", 0.0, "fill"),
    ("fill", -2.5, "fill"),
    ("symmetric", 0.0, "symm"),
    ("wrap", 0.0, "wrap"),
]


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


def exact(image: Array, kernel: Array, boundary: str, fill: float) -> Array:
    """By SciPy, in float64 and with its own borders."""
    arrays = (array.astype(np.float64) for array in (image, kernel))
    found: Array = convolve2d(*arrays, mode="same", boundary=boundary, fillvalue=fill)
    return found


def test_the_issues_implementations_are_there() -> None:
    assert list(IMPLEMENTATIONS) == [
        "four loops",
        "window sums",
        "im2col",
        "im2col recursive",
        "sliding_window_view",
        "scipy convolve2d",
        "scipy fftconvolve",
        "torch conv2d",
        "torch unfold",
        "native",
    ]
    assert REFERENCE in IMPLEMENTATIONS
    assert all("n²" in implementation.cost for implementation in IMPLEMENTATIONS.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_an_implementation_equals_scipy(name: str, dtype: type) -> None:
    for (seed, shape), reach, (border, fill, boundary) in itertools.product(enumerate(IMAGES), KERNELS, BORDERS):
        if name == "im2col" and np.prod(shape) * np.prod(reach) > 4000:
            continue  # too slow
        image, kernel = draw(shape, dtype, seed), draw(reach, dtype, seed + 1)
        before = image.copy(), kernel.copy()
        found = IMPLEMENTATIONS[name](image, kernel, border=border, fill=fill)
        assert (found.shape, found.dtype) == (image.shape, image.dtype)
        expected = exact(image, kernel, boundary, fill)
        close = tolerance(image, kernel, border, fill)
        np.testing.assert_allclose(found, expected, rtol=0, atol=close, err_msg=f"{shape} {reach} {border} {fill}")
        np.testing.assert_array_equal(image, before[0])
        np.testing.assert_array_equal(kernel, before[1])


@pytest.mark.parametrize("name", NAMES)
def test_views_are_as_good_as_arrays(name: str) -> None:
    image, kernel = draw((20, 30)), draw((6, 4))
    image.flags.writeable = kernel.flags.writeable = False
    for one, other in (
        (image, kernel),
        (image.T, kernel.T),
        (image[::-2, ::3], kernel[:, ::-1]),
        (image[3:9], kernel[::2, 1:][:, :1]),
    ):
        found = IMPLEMENTATIONS[name](one, other, fill=1.0)
        close = tolerance(one, other, "fill", 1.0)
        np.testing.assert_allclose(found, exact(one, other, "fill", 1.0), rtol=0, atol=close)


@pytest.mark.parametrize("name", NAMES)
def test_an_implementation_uses_its_arguments(name: str) -> None:
    """The third source document's im2col convolved an image of its own, whatever it was given."""
    implementation, one, other = IMPLEMENTATIONS[name], draw((6, 5), seed=1), draw((6, 5), seed=2)
    kernel, another = draw((3, 3), seed=3), draw((3, 3), seed=4)
    plain = implementation(one, kernel)
    assert not np.allclose(plain, implementation(other, kernel))
    assert not np.allclose(plain, implementation(one, another))
    assert not np.allclose(plain, implementation(one, np.flip(kernel)))  # a convolution, not a correlation
    np.testing.assert_allclose(implementation(one + other, kernel), plain + implementation(other, kernel), atol=1e-12)
    np.testing.assert_array_equal(plain, implementation(one, kernel))  # and keeps nothing of the calls between


DIMENSIONS = {
    1: ((9,), (4,)),
    2: ((7, 5), (3, 2)),
    3: ((5, 4, 6), (3, 2, 1)),
    4: ((3, 4, 2, 5), (2, 3, 3, 2)),
    5: ((2, 3, 2, 1, 3), (2, 1, 3, 2, 2)),
}


@pytest.mark.parametrize(("shape", "reach"), DIMENSIONS.values(), ids=map(str, DIMENSIONS))
def test_the_recursive_one_equals_scipy_in_any_dimension(shape: tuple[int, ...], reach: tuple[int, ...]) -> None:
    image, kernel = draw(shape), draw(reach, seed=1)
    close = {"rtol": 0, "atol": tolerance(image, kernel, "wrap", 0.0)}
    np.testing.assert_allclose(
        convolve_nd(image, kernel), convolve(image, kernel, mode="same", method="direct"), **close
    )
    # ndimage puts the middle of an even side one element further on
    origin = [-1 if side % 2 == 0 else 0 for side in reach]
    for border, mode, fill in (("fill", "constant", 1.5), ("symmetric", "reflect", 0.0), ("wrap", "grid-wrap", 0.0)):
        found = convolve_nd(image, kernel, border=border, fill=fill)
        expected = ndimage.convolve(image, kernel, mode=mode, cval=fill, origin=origin)
        np.testing.assert_allclose(found, expected, **close)


@pytest.mark.parametrize(("shape", "reach"), DIMENSIONS.values(), ids=map(str, DIMENSIONS))
def test_both_ways_to_lay_out_windows_are_numpys(shape: tuple[int, ...], reach: tuple[int, ...]) -> None:
    image = padded(draw(shape), reach)
    expected = np.lib.stride_tricks.sliding_window_view(image, reach)
    np.testing.assert_array_equal(im2col_recursive(image, reach), expected)
    np.testing.assert_array_equal(im2col_naive(image, reach), expected)


def test_the_recursive_one_computes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []
    inner = im2col.im2col_recursive

    def counting(image: Array, kernel_shape: tuple[int, ...]) -> Array:
        made.append(image.shape)
        return inner(image, kernel_shape)

    monkeypatch.setattr(im2col, "im2col_recursive", counting)
    counting(draw((6, 5, 4)), (3, 3, 3))
    assert made.count((5, 4)) == 6  # one for each plane, not for each plane and place in the kernel
    assert made.count((4,)) == 6 * 5
    assert len(made) == 1 + 6 + 6 * 5


def test_indices_are_numpys() -> None:
    for shape in ((7,), (3, 4), (2, 3, 5), (1, 1, 4, 2)):
        for number in range(int(np.prod(shape))):
            assert tuple(im2col._get_indices(number, shape)) == np.unravel_index(number, shape)
    large = 2**53 + 1  # which division of floats would not keep
    assert list(im2col._get_indices(large, (2**50, 16))) == [large // 16, 1]


WRONG = {
    "an empty image": (np.ones((0, 3)), np.ones((1, 1)), r"image of shape \(0, 3\) is empty"),
    "an empty kernel": (np.ones((3, 3)), np.ones((3, 0)), r"kernel of shape \(3, 0\) is empty"),
    "an image of three dimensions": (np.ones((1, 3, 3)), np.ones((1, 1)), "image .* has 3 dimensions; it must have 2"),
    "a kernel of one": (np.ones((3, 3)), np.ones(3), "kernel .* has 1 dimensions; it must have 2"),
    "integers": (np.ones((3, 3), dtype=int), np.ones((1, 1)), "image is of type int64; convert it"),
    "half": (np.ones((3, 3)), np.ones((1, 1), dtype=np.float16), "kernel is of type float16; convert it"),
    "two types": (np.ones((3, 3)), np.ones((1, 1), dtype=np.float32), "image is float64 and the kernel float32"),
}


@pytest.mark.parametrize(("image", "kernel", "message"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_what_cannot_be_convolved_is_refused(name: str, image: Array, kernel: Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IMPLEMENTATIONS[name](image, kernel)


def test_the_recursive_one_refuses_too() -> None:
    with pytest.raises(ValueError, match=r"image of shape \(\) has 0 dimensions; it must have 1"):
        convolve_nd(np.array(1.0), np.array(1.0))
    with pytest.raises(ValueError, match=r"kernel of shape \(2, 2\) has 2 dimensions; it must have 3"):
        convolve_nd(np.ones((2, 2, 2)), np.ones((2, 2)))


def test_an_unknown_border_is_refused() -> None:
    with pytest.raises(ValueError, match="border=symm is not a choice; choose one of fill, symmetric, wrap"):
        Implementation(lambda image, kernel: image, "n²")(np.ones((3, 3)), np.ones((1, 1)), border="symm")
