"""Work on a batch in parts that stay in a CPU's cache from one pass over them to the next.

A pass over a whole large batch reads it from memory, and a result as large as the batch costs a page fault every 4 KiB.
"""

import torch
from torch import Tensor

CACHED = 1 << 18  # floats of a batch that one core works on at a time


def parts_of(images: Tensor, *others: Tensor) -> list[tuple[Tensor, ...]]:
    """``images`` (N, ...), on a CPU in parts, each with the same part of the others (N, ...); views of all of them."""
    size = max(1, len(images))
    if images.device.type == "cpu" and images.numel():
        size = max(1, CACHED * torch.get_num_threads() // images[0].numel())
    return list(zip(*(torch.split(one, size) for one in (images, *others)), strict=True))
