"""A convolution in C++, on one thread: one of the implementations that ``suite=convolution`` compares."""

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
    """The valid part (H - kh + 1, W - kw + 1) of a convolution, with the kernel turned by 180 degrees.

    ``image`` (H, W) and ``kernel`` (kh, kw), which is no larger, have one type, float32 or float64, are contiguous and
    on the CPU; otherwise raises a RuntimeError. Raises a DataError if the operators cannot be compiled.
    """
    part: Tensor = operators(LIBRARY).convolve(image, kernel)
    return part
