"""Every implementation of the study, by its name: all compute one thing, and say what it should cost."""

from collections.abc import Callable
from dataclasses import dataclass

from strobe.bench.convolution import im2col, loops, vectorised
from strobe.bench.convolution.borders import Array, Border, check_arrays, padded
from strobe.bench.convolution.study import REFERENCE

_PIXELS = "n²: k² products a pixel"


@dataclass(frozen=True)
class Implementation:
    """A convolution of an image by a kernel, of which it calls the valid part only."""

    valid: Callable[[Array, Array], Array]
    """Of an image (H, W) and a kernel (kh, kw) no larger: (H - kh + 1, W - kw + 1), in their type."""

    cost: str
    """How the work grows with the side n of an image, the kernel being fixed, in theory; k is the kernel's side."""

    def __call__(self, image: Array, kernel: Array, *, border: Border = "fill", fill: float = 0.0) -> Array:
        """The convolution, as large as the image; neither argument is changed.

        The image is padded first, the same way for every implementation and within what is timed. So ``symmetric``
        and ``wrap`` work wherever ``fill`` does.

        Args:
            image: (H, W), float32 or float64.
            kernel: (kh, kw), of the image's type; odd, even or larger than the image.
            border: What lies beyond the image: ``fill``, ``symmetric`` or ``wrap``.
            fill: The value there, with ``border="fill"``.

        Returns:
            (H, W), in the image's type: what ``scipy.signal.convolve2d(image, kernel, mode="same", ...)`` returns.

        Raises:
            ValueError: An array is empty, not of two dimensions or of another type, or the border is not a choice.
            DataError: ``native`` cannot be compiled; says what to install.
        """
        check_arrays(image, kernel, dimensions=2)
        return self.valid(padded(image, kernel.shape, border=border, fill=fill), kernel)


IMPLEMENTATIONS: dict[str, Implementation] = {
    "four loops": Implementation(loops.four_loops, f"{_PIXELS}, each in Python"),
    "window sums": Implementation(loops.window_sums, f"{_PIXELS}, two calls of NumPy for each pixel"),
    "im2col": Implementation(im2col.naive, f"{_PIXELS}, each found by its index in Python, and k² n² of memory"),
    "im2col recursive": Implementation(im2col.recursive, f"{_PIXELS}, n calls in Python, and k² n² of memory"),
    "sliding_window_view": Implementation(vectorised.windows, _PIXELS),
    REFERENCE: Implementation(vectorised.scipy_direct, _PIXELS),
    "scipy fftconvolve": Implementation(vectorised.scipy_fft, "n² log n, whatever the kernel"),
    "torch conv2d": Implementation(vectorised.torch_conv2d, _PIXELS),
    "torch unfold": Implementation(vectorised.torch_unfold, f"{_PIXELS}, and k² n² of memory"),
    "native": Implementation(vectorised.native, _PIXELS),
}
