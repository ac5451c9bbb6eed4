"""Valid convolutions in plain loops over the pixels."""

import numpy as np

from strobe.bench.convolution.borders import Array, valid_shape


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
