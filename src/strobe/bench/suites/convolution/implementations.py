"""Ten convolutions of an image by a kernel. Each computes the valid part of an image that was padded before.

The result lies where SciPy's ``mode="same"`` puts it, see
https://docs.scipy.org/doc/scipy/reference/generated/scipy.signal.convolve2d.html. Torch and NumPy's product of matrices
use as many threads as they are given; the others use one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.signal import convolve2d, fftconvolve
from torch import Tensor
from torch.nn import functional as F

from strobe.app.native.convolution import convolve
from strobe.bench.suites.convolution.suite import REFERENCE

Array = NDArray[Any]  # float32 or float64


def padded(image: Array, kernel_shape: tuple[int, ...]) -> Array:
    """The image, sides of n, within as many zeros as the kernel, sides of k, reaches beyond it: sides of n + k - 1."""
    return np.pad(image, [(side // 2, (side - 1) // 2) for side in kernel_shape])


def valid_shape(image: Array, kernel_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Places of the kernel within the image: sides of n - k + 1."""
    return tuple(side - reach + 1 for side, reach in zip(image.shape, kernel_shape, strict=True))


def four_loops(image: Array, kernel: Array) -> Array:
    """Each product on its own: two loops over the pixels, two over the kernel."""
    flipped = np.flip(kernel)
    out = np.zeros(valid_shape(image, kernel.shape), dtype=image.dtype)
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            for i in range(kernel.shape[0]):
                for j in range(kernel.shape[1]):
                    out[row, column] += image[row + i, column + j] * flipped[i, j]
    return out


def window_sums(image: Array, kernel: Array) -> Array:
    """Two loops over the pixels; NumPy multiplies each one's window by the kernel and sums."""
    flipped = np.flip(kernel)
    height, width = kernel.shape
    out = np.empty(valid_shape(image, kernel.shape), dtype=image.dtype)
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            out[row, column] = (image[row : row + height, column : column + width] * flipped).sum()
    return out


def _get_indices(number: int, shape: Sequence[int]) -> NDArray[np.int64]:
    """Where an element lies in an array of that shape, by its number in memory's order; all of it in integers."""
    indices = np.empty(len(shape), dtype=np.int64)
    for axis in range(len(shape) - 1, 0, -1):
        number, indices[axis] = divmod(number, shape[axis])
    indices[0] = number
    return indices


def im2col_naive(image: Array, kernel_shape: tuple[int, ...]) -> Array:
    """Every window, element by element, each found by its index; in any number of dimensions.

    Returns:
        Sides of n - k + 1, then of k: the image's element at the place of a window and a place within it.
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
    """As :func:`im2col_naive`, one dimension at a time: each plane's windows are made once for all that hold it."""
    planes = image if image.ndim == 1 else np.stack([im2col_recursive(plane, kernel_shape[1:]) for plane in image])
    count = image.shape[0] - kernel_shape[0] + 1
    return np.stack([planes[i : i + count] for i in range(kernel_shape[0])], axis=image.ndim)


def product(windows: Array, kernel: Array) -> Array:
    """The product of windows with the kernel turned by 180 degrees."""
    summed: Array = windows.reshape(-1, kernel.size) @ np.flip(kernel).ravel()
    return summed.reshape(windows.shape[: kernel.ndim])


def by_im2col(lay_out: Callable[[Array, tuple[int, ...]], Array], image: Array, kernel: Array) -> Array:
    """The windows laid out as rows of a matrix, then one product."""
    return product(lay_out(image, kernel.shape), kernel)


def window_view(image: Array, kernel: Array) -> Array:
    """All windows as a view, in which nothing is copied, multiplied and summed by ``einsum``."""
    summed: Array = np.einsum("ijkl,kl->ij", sliding_window_view(image, kernel.shape), np.flip(kernel))
    return summed


def torch_conv2d(image: Array, kernel: Array) -> Array:
    """``torch.nn.functional.conv2d``, which does not flip the kernel."""
    result: Array = F.conv2d(_tensor(image)[None, None], _tensor(np.flip(kernel))[None, None])[0, 0].numpy()
    return result


def torch_unfold(image: Array, kernel: Array) -> Array:
    """``torch.nn.functional.unfold``, which is im2col, then a product of vector and matrix."""
    columns = F.unfold(_tensor(image)[None, None], kernel.shape)[0]
    result: Array = (_tensor(np.flip(kernel)).flatten() @ columns).numpy()
    return result.reshape(valid_shape(image, kernel.shape))


def _tensor(plane: Array) -> Tensor:
    """Contiguous; copied where torch would refuse it (backwards, even along a side of 1) or warn (read-only)."""
    copied = not plane.flags.writeable or any(stride < 0 for stride in plane.strides)
    return torch.from_numpy(plane.copy() if copied else np.ascontiguousarray(plane))


@dataclass(frozen=True)
class Implementation:
    """A convolution of an image by a kernel, zeros beyond its border."""

    valid: Callable[[Array, Array], Array]  # of (H, W) and (kh, kw): (H - kh + 1, W - kw + 1), in their type
    cost: str = ""  # how the work should grow with the side n of an image, for a kernel of side k

    def __call__(self, image: Array, kernel: Array) -> Array:
        """What ``convolve2d(image, kernel, mode="same")`` returns of an image (H, W) and a kernel (kh, kw) of its type.

        Raises:
            DataError: ``native`` cannot be compiled; says what to install.
        """
        return self.valid(padded(image, kernel.shape), kernel)


_PIXELS = "n²: k² products a pixel"
IMPLEMENTATIONS: dict[str, Implementation] = {
    "four loops": Implementation(four_loops, f"{_PIXELS}, each in Python"),
    "window sums": Implementation(window_sums, f"{_PIXELS}, two calls of NumPy for each pixel"),
    "im2col": Implementation(
        partial(by_im2col, im2col_naive), f"{_PIXELS}, each found by its index in Python, and k² n² of memory"
    ),
    "im2col recursive": Implementation(
        partial(by_im2col, im2col_recursive), f"{_PIXELS}, n calls in Python, and k² n² of memory"
    ),
    "sliding_window_view": Implementation(window_view, _PIXELS),
    REFERENCE: Implementation(partial(convolve2d, mode="valid"), _PIXELS),
    "scipy fftconvolve": Implementation(partial(fftconvolve, mode="valid"), "n² log n, whatever the kernel"),
    "torch conv2d": Implementation(torch_conv2d, _PIXELS),
    "torch unfold": Implementation(torch_unfold, f"{_PIXELS}, and k² n² of memory"),
    "native": Implementation(lambda image, kernel: convolve(_tensor(image), _tensor(kernel)).numpy(), _PIXELS),
}
