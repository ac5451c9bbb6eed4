"""Random changes to a batch of training images, on its device, drawn from a generator of their own."""

import torch
from torch import Tensor
from torch.nn import functional as F


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image (N, C, H, W) left to right with probability 1/2."""
    return torch.where(_coin(images, generator), images.flip(-1), images)


def dihedral(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turn or mirror each image (N, C, H, W): up is nowhere in space.

    A square image becomes one of its eight symmetric forms, another one of the four that keep its shape.
    """
    images = flip(images, generator)
    images = torch.where(_coin(images, generator), images.flip(-2), images)
    if images.shape[-1] != images.shape[-2]:
        return images
    return torch.where(_coin(images, generator), images.transpose(-1, -2), images)


def shift(images: Tensor, generator: torch.Generator, *, pixels: int = 4) -> Tensor:
    """Crop each image (N, C, H, W) at its own place from itself padded with ``pixels`` zeros on each side."""
    count, _, height, width = images.shape
    padded = F.pad(images, (pixels,) * 4)
    corners = torch.randint(2 * pixels + 1, (2, count, 1), generator=generator, device=images.device)
    rows = corners[0] + torch.arange(height, device=images.device)
    columns = corners[1] + torch.arange(width, device=images.device)
    image = torch.arange(count, device=images.device)
    return padded[image[:, None, None], :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def _coin(images: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(len(images), 1, 1, 1, generator=generator, device=images.device) < 0.5
