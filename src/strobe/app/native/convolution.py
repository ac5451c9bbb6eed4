"""A convolution in C++, on one thread: one implementation of the study in ``strobe.bench.suites.convolution``."""

from torch import Tensor

from strobe.app.native.build import Library, operators


def _valid(image: Tensor, kernel: Tensor) -> Tensor:
    return image.new_empty([side - reach + 1 for side, reach in zip(image.shape, kernel.shape, strict=True)])


LIBRARY = Library(
    "convolution",
    ("convolution.cpp",),
    serves="suite=convolution",
    instead="leave native out of suite.implementations",
    fakes=(("strobe::convolve", _valid),),
)


def convolve(image: Tensor, kernel: Tensor) -> Tensor:
    """The valid part of a convolution: where the kernel, turned by 180 degrees, lies within the image.

    Args:
        image: (H, W) float32 or float64, contiguous, on the CPU.
        kernel: (kh, kw), of the same type, contiguous, no larger than the image.

    Returns:
        (H - kh + 1, W - kw + 1), of the same type.

    Raises:
        RuntimeError: an argument is not as above.
        DataError: the operators cannot be compiled; says what to install.
    """
    found: Tensor = operators(LIBRARY).convolve(image, kernel)
    return found
