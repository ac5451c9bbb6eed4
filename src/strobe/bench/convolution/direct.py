"""How long the parts of im2col take when nobody looks: each is timed on its own, and no call pays for it."""

from functools import partial

from strobe.bench.convolution import im2col
from strobe.bench.convolution.borders import Array, padded, valid_shape
from strobe.bench.convolution.implementations import Implementation
from strobe.bench.convolution.sampling_profile import timed
from strobe.bench.convolution.study import PARTS


def time_parts(image: Array, kernel: Array, repetitions: int) -> dict[str, float]:
    """Own seconds of each of ``PARTS`` in so many convolutions.

    The calls of ``_get_indices`` are made again with the same arguments and nothing else, less what the loop around
    them takes; so are the rest, with windows that are there already. What is left of the whole is ``im2col_naive``.

    Args:
        image: (H, W).
        kernel: (kh, kw), of the image's type.
        repetitions: Of the whole, and of each part.
    """
    ready = padded(image, kernel.shape)
    shape = valid_shape(ready, kernel.shape)
    windows = im2col.im2col_naive(ready, kernel.shape)
    rest = Implementation(lambda _, kernel: im2col.product(windows, kernel), "")
    whole = timed(lambda: _repeat(Implementation(im2col.naive, ""), image, kernel, repetitions))
    count = repetitions * windows.size // kernel.size
    indices = timed(partial(_indices, shape, kernel.shape, count)) - timed(partial(_nothing, kernel.size, count))
    others = timed(lambda: _repeat(rest, image, kernel, repetitions))
    return dict(zip(PARTS, (max(0.0, whole - indices - others), max(0.0, indices), others), strict=True))


def _repeat(implementation: Implementation, image: Array, kernel: Array, repetitions: int) -> None:
    for _ in range(repetitions):
        implementation(image, kernel)


def _indices(shape: tuple[int, ...], kernel_shape: tuple[int, ...], count: int) -> None:
    """The calls for so many windows, which begin again where an image ends."""
    find, windows, elements = im2col._get_indices, shape[0] * shape[1], kernel_shape[0] * kernel_shape[1]
    for number in range(count):
        place = number % windows
        for element in range(elements):
            find(place, shape)
            find(element, kernel_shape)


def _nothing(elements: int, count: int) -> None:
    for _ in range(count):
        for _ in range(elements):
            pass
