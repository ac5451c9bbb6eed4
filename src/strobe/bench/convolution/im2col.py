"""im2col: the windows laid out as rows of a matrix, so that a convolution is one product of matrix and vector.

Both ways to lay them out work in any number of dimensions, on an image that was padded before.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strobe.bench.convolution.borders import Array, Border, check_arrays, padded, valid_shape


def _get_indices(number: int, shape: Sequence[int]) -> NDArray[np.int64]:
    """Where an element lies in an array of that shape, by its number in memory's order; all of it in integers."""
    indices = np.empty(len(shape), dtype=np.int64)
    for axis in range(len(shape) - 1, 0, -1):
        number, indices[axis] = divmod(number, shape[axis])
    indices[0] = number
    return indices


def im2col_naive(image: Array, kernel_shape: tuple[int, ...]) -> Array:
    """Every window, element by element, each found by its index.

    Args:
        image: Sides of n.
        kernel_shape: As many sides of k, none larger than the image's.

    Returns:
        Sides of n - k + 1, then of k: at the place of a window and a place within it, the image's element there.
    """
    shape = valid_shape(image, kernel_shape)
    windows = np.empty(shape + kernel_shape, dtype=image.dtype)
    for place in range(math.prod(shape)):
        for element in range(math.prod(kernel_shape)):
            first = _get_indices(place, shape)
            within = _get_indices(element, kernel_shape)
            windows[(*first, *within)] = image[tuple(first + within)]
    return windows


def im2col_recursive(image: Array, kernel_shape: tuple[int, ...]) -> Array:
    """As :func:`im2col_naive`, one dimension at a time.

    The windows of an array are those of its planes, each kernel side apart. A plane is a part of as many windows as
    the kernel's side is long, and its own windows are made once for all of them.
    """
    # A row's parts are its elements: there the recursion ends.
    planes = image if image.ndim == 1 else np.stack([im2col_recursive(plane, kernel_shape[1:]) for plane in image])
    count = image.shape[0] - kernel_shape[0] + 1
    return np.stack([planes[i : i + count] for i in range(kernel_shape[0])], axis=image.ndim)


def naive(image: Array, kernel: Array) -> Array:
    """Valid convolution by :func:`im2col_naive`."""
    return product(im2col_naive(image, kernel.shape), kernel)


def recursive(image: Array, kernel: Array) -> Array:
    """Valid convolution by :func:`im2col_recursive`."""
    return product(im2col_recursive(image, kernel.shape), kernel)


def convolve_nd(image: Array, kernel: Array, *, border: Border = "fill", fill: float = 0.0) -> Array:
    """Convolution in any number of dimensions, recursively.

    Args:
        image: Of at least one dimension, float32 or float64.
        kernel: As many dimensions, of the image's type; a side may be longer than the image's.
        border: What lies beyond the border; see :func:`strobe.bench.convolution.borders.padded`.
        fill: The value there, with ``border="fill"``.

    Returns:
        As large as the image, and placed as by ``scipy.signal.convolve(image, kernel, mode="same")``.

    Raises:
        ValueError: An array is empty or of another kind, or the border is not a choice.
    """
    check_arrays(image, kernel)
    return recursive(padded(image, kernel.shape, border=border, fill=fill), kernel)


def product(windows: Array, kernel: Array) -> Array:
    """What remains to be done with windows: their product with the kernel, turned by 180 degrees."""
    shape = windows.shape[: kernel.ndim]
    product: Array = windows.reshape(-1, kernel.size) @ np.flip(kernel).ravel()
    return product.reshape(shape)
