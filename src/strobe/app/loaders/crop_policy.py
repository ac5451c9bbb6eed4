"""Which part of a photo becomes the square that is trained on: a pure function of seed, epoch and photo.

It depends neither on the batch nor on the worker, so all loaders, batch sizes and engines give the same crops, and a
resumed run continues like an uninterrupted one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ATTEMPTS = 10
DRAWS = 2 * ATTEMPTS + 2  # random numbers a photo: areas and aspect ratios to try, and the place
AREA = (0.08, 1.0)  # of the photo
ASPECT = (3 / 4, 4 / 3)
CENTRE = 0.875  # of the shorter side: 224 of 256, as ImageNet's usual evaluation

Boxes = NDArray[np.int64]
"""(N, 4): top, left, height, width, in pixels of the photo."""


@dataclass(frozen=True)
class CropPolicy:
    """Chooses a box of each photo, and the side of the square that it becomes.

    ``kind`` is one of

    - ``resize``: the whole photo;
    - ``random_crop``: a square of ``size`` pixels, not resized; of a smaller photo, the largest square;
    - ``random_resized_crop``: 8 to 100% of the area, with an aspect ratio of 3/4 to 4/3, as torchvision's
      transform of this name (Szegedy 2014, arXiv:1409.4842); if ten attempts do not fit, the largest box of such a
      ratio, centred.

    Unless ``random``, the two crops are the centre: of ``size`` pixels, or of 7/8 of the shorter side.
    """

    kind: str
    size: int
    random: bool = False
    seed: int = 0

    @property
    def varies(self) -> bool:
        """Whether a photo's crop changes from epoch to epoch."""
        return self.random and self.kind != "resize"

    def boxes(self, sizes: NDArray[np.int64], photos: NDArray[np.int64], epoch: int) -> Boxes:
        """The box of each photo, by ``sizes`` (N, 2), height and width, and the photos' numbers (N,) in the set."""
        height, width = sizes[:, 0], sizes[:, 1]
        if self.kind == "resize":
            return np.stack([np.zeros_like(height), np.zeros_like(width), height, width], axis=1)
        if not self.random:
            shorter = np.minimum(height, width)
            side = np.minimum(shorter, self.size) if self.kind == "random_crop" else np.rint(CENTRE * shorter)
            side = np.maximum(side, 1).astype(np.int64)
            return np.stack([(height - side) // 2, (width - side) // 2, side, side], axis=1)
        draws = uniform(self.seed, epoch, photos)
        if self.kind == "random_crop":
            side = np.minimum(np.minimum(height, width), self.size)
            tall = wide = side
            fits = np.ones(len(side), dtype=np.bool_)
        else:
            tall, wide, fits = _area(height, width, draws)
        top = np.where(fits, draws[:, -2] * (height - tall + 1), (height - tall) // 2).astype(np.int64)
        left = np.where(fits, draws[:, -1] * (width - wide + 1), (width - wide) // 2).astype(np.int64)
        return np.stack([top, left, tall, wide], axis=1)


def _area(
    height: NDArray[np.int64], width: NDArray[np.int64], draws: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Height and width (N,) of the first attempt that fits, or else of the largest box; and whether one fits."""
    area = (height * width)[:, None] * (AREA[0] + (AREA[1] - AREA[0]) * draws[:, :ATTEMPTS])
    low, high = np.log(ASPECT)
    aspect = np.exp(low + (high - low) * draws[:, ATTEMPTS : 2 * ATTEMPTS])
    wide, tall = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
    fits = (wide >= 1) & (wide <= width[:, None]) & (tall >= 1) & (tall <= height[:, None])
    first, rows = fits.argmax(axis=1), np.arange(len(fits))
    widest = np.minimum(width, np.rint(height * ASPECT[1]))
    tallest = np.minimum(height, np.rint(width / ASPECT[0]))
    any_fits = fits.any(axis=1)
    return (
        np.where(any_fits, tall[rows, first], np.maximum(tallest, 1)).astype(np.int64),
        np.where(any_fits, wide[rows, first], np.maximum(widest, 1)).astype(np.int64),
        any_fits,
    )


def uniform(seed: int, epoch: int, photos: NDArray[np.int64]) -> NDArray[np.float64]:
    """Random numbers (N, DRAWS) in [0, 1), by SplitMix64 (Steele 2014, doi:10.1145/2714064.2660195)."""
    key = np.uint64(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0])
    first: NDArray[np.uint64] = photos.astype(np.uint64)[:, None] * np.uint64(DRAWS)
    each: NDArray[np.uint64] = np.arange(1, DRAWS + 1, dtype=np.uint64)
    counter: NDArray[np.uint64] = first + each
    bits: NDArray[np.uint64] = key + counter * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    unit: NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return unit
