"""Random changes to a batch of training images, on its device, from a generator of their own.

The numbers that are drawn depend only on how many images there are. ``out`` takes the result, and may be ``images``.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

CACHED = 1 << 18  # floats of a batch that one core works on at a time


def flip(images: Tensor, generator: torch.Generator, *, out: Tensor | None = None) -> Tensor:
    """Mirror each image (N, C, H, W) left to right with probability 1/2."""
    return _changed(_mirrored, images, out, _coin(images, generator))


def dihedral(images: Tensor, generator: torch.Generator, *, out: Tensor | None = None) -> Tensor:
    """Turn or mirror each image (N, C, H, W): seen from space, no side is up.

    A square image becomes one of its eight symmetric forms, any other one of the four that keep its shape.
    """
    square = images.shape[-1] == images.shape[-2]
    coins = [_coin(images, generator) for _ in range(2 + square)]
    return _changed(_turned, images, out, *coins)


def shift(images: Tensor, generator: torch.Generator, *, pixels: int = 4, out: Tensor | None = None) -> Tensor:
    """Pad each image (N, C, H, W) with ``pixels`` zeros on each side, and crop it at a random place."""

    def crop(images: Tensor, top: Tensor, left: Tensor) -> Tensor:
        count, _, height, width = images.shape
        padded = F.pad(images, (pixels,) * 4)
        rows = top + torch.arange(height, device=images.device)
        columns = left + torch.arange(width, device=images.device)
        image = torch.arange(count, device=images.device)
        return padded[image[:, None, None], :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)

    corners = torch.randint(2 * pixels + 1, (2, len(images), 1), generator=generator, device=images.device)
    return _changed(crop, images, out, *corners)


def _changed(change: Callable[..., Tensor], images: Tensor, out: Tensor | None, *drawn: Tensor) -> Tensor:
    result = torch.empty_like(images, memory_format=torch.contiguous_format) if out is None else out
    for target, part, *own in parts_of(result, images, *drawn):
        target.copy_(change(part, *own))
    return result


def _mirrored(images: Tensor, across: Tensor) -> Tensor:
    return torch.where(across, images.flip(-1), images)


def _turned(images: Tensor, across: Tensor, down: Tensor, over: Tensor | None = None) -> Tensor:
    images = _mirrored(images, across)
    images = torch.where(down, images.flip(-2), images)
    return images if over is None else torch.where(over, images.transpose(-1, -2), images)


def _coin(images: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(len(images), 1, 1, 1, generator=generator, device=images.device) < 0.5


def parts_of(images: Tensor, *others: Tensor) -> list[tuple[Tensor, ...]]:
    """``images`` (N, ...), and the same parts of the ``others`` (N, ...), as views; in several parts on a CPU.

    A part stays in a core's cache from one pass to the next. A pass over a whole large batch reads it from memory.
    """
    size = max(1, len(images))
    if images.device.type == "cpu" and images.numel():
        size = max(1, CACHED * torch.get_num_threads() // images[0].numel())
    return list(zip(*(torch.split(one, size) for one in (images, *others)), strict=True))
