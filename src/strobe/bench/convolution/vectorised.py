"""Valid convolutions by NumPy, SciPy, torch and the native operator: no loop over pixels in Python.

Torch, and NumPy's product of matrices, use as many threads as they are given; the others use one.
"""

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import convolve2d, fftconvolve
from torch import Tensor
from torch.nn import functional as F

from strobe.app.native.convolution import convolve
from strobe.bench.convolution.borders import Array, valid_shape


def windows(image: Array, kernel: Array) -> Array:
    """All windows as a view, in which nothing is copied, multiplied and summed by ``einsum``."""
    view = sliding_window_view(image, kernel.shape)
    summed: Array = np.einsum("ijkl,kl->ij", view, np.flip(kernel))
    return summed


def scipy_direct(image: Array, kernel: Array) -> Array:
    """``scipy.signal.convolve2d``."""
    found: Array = convolve2d(image, kernel, mode="valid")
    return found


def scipy_fft(image: Array, kernel: Array) -> Array:
    """``scipy.signal.fftconvolve``: a product of two spectra. Its errors are of the size of the largest pixels'."""
    found: Array = fftconvolve(image, kernel, mode="valid")
    return found


def torch_conv2d(image: Array, kernel: Array) -> Array:
    """``torch.nn.functional.conv2d``, which does not flip the kernel."""
    found: Array = F.conv2d(_batch(image), _batch(np.flip(kernel)))[0, 0].numpy()
    return found


def torch_unfold(image: Array, kernel: Array) -> Array:
    """``torch.nn.functional.unfold``, which is im2col, then a product of vector and matrix."""
    columns = F.unfold(_batch(image), kernel.shape)[0]
    found: Array = (_tensor(np.flip(kernel)).flatten() @ columns).numpy()
    return found.reshape(valid_shape(image, kernel.shape))


def native(image: Array, kernel: Array) -> Array:
    """This project's operator in C++, on one thread."""
    found: Array = convolve(_tensor(image), _tensor(kernel)).numpy()
    return found


def _batch(plane: Array) -> Tensor:
    return _tensor(plane)[None, None]


def _tensor(plane: Array) -> Tensor:
    """Contiguous; copied where torch would refuse it (backwards, even along a side of 1) or warn (read-only)."""
    copied = not plane.flags.writeable or any(stride < 0 for stride in plane.strides)
    return torch.from_numpy(plane.copy() if copied else np.ascontiguousarray(plane))
