"""What lies beyond the border: one padding in front of every implementation, which then has no border to think of.

The padded image is larger by the kernel's size less one, so that its "valid" convolution is as large as the image, and
lies where SciPy's ``mode="same"`` puts it: https://docs.scipy.org/doc/scipy/reference/generated/scipy.signal.convolve2d.html.
"""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # float32 or float64
Border = Literal["fill", "symmetric", "wrap"]

_DTYPES = (np.float32, np.float64)


def padded(image: Array, kernel_shape: tuple[int, ...], *, border: Border = "fill", fill: float = 0.0) -> Array:
    """The image with as much around it as the kernel reaches beyond its border; always a copy.

    Args:
        image: Of any number of dimensions, sides of n.
        kernel_shape: As many sides of k; k // 2 are added before an axis, (k - 1) // 2 behind it.
        border: ``fill`` repeats one value, ``symmetric`` mirrors the image, edge included, ``wrap`` repeats it.
        fill: That value.

    Returns:
        Sides of n + k - 1, in the image's type.
    """
    widths = [(side // 2, (side - 1) // 2) for side in kernel_shape]
    match border:
        case "fill":
            return np.pad(image, widths, mode="constant", constant_values=fill)
        case "symmetric":
            return np.pad(image, widths, mode="symmetric")
        case "wrap":
            return np.pad(image, widths, mode="wrap")
    raise ValueError(f"border={border} is not a choice; choose one of {', '.join(get_args(Border))}")


def check_arrays(image: Array, kernel: Array, dimensions: int | None = None) -> None:
    """Refuse what no implementation can take.

    Args:
        image: Of at least one element.
        kernel: As many dimensions as the image and its type, and at least one element.
        dimensions: How many both must have; as they like if None.

    Raises:
        ValueError: An array is of another kind; names it, says what it is and what it must be.
    """
    wanted = dimensions or max(image.ndim, 1)
    for name, array in (("image", image), ("kernel", kernel)):
        if array.ndim != wanted:
            raise ValueError(f"The {name} of shape {array.shape} has {array.ndim} dimensions; it must have {wanted}")
        if array.size == 0:
            raise ValueError(f"The {name} of shape {array.shape} is empty; each side must be at least 1")
        if array.dtype not in _DTYPES:
            raise ValueError(f"The {name} is of type {array.dtype}; convert it to float32 or float64")
    if image.dtype != kernel.dtype:
        raise ValueError(f"The image is {image.dtype} and the kernel {kernel.dtype}; convert one to the other's type")


def valid_shape(image: Array, kernel_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Where the kernel lies within the image: sides of n - k + 1."""
    return tuple(side - reach + 1 for side, reach in zip(image.shape, kernel_shape, strict=True))
