"""Files as the operators take them."""

from typing import NamedTuple

import torch
from torch import Tensor


class Files(NamedTuple):
    """Files by their paths, or by their contents, which were read already."""

    text: Tensor  # (B,) uint8: paths, or contents, one behind the other
    ends: Tensor  # (M,) int64: where each of them ends
    chosen: Tensor | None = None  # (N,) int64: which of the paths; None: these are contents, N = M of them


def statuses(out: Tensor, *_: object) -> Tensor:
    """What an operator says of each image of a batch, for tensors without data."""
    return out.new_empty(out.shape[:1], dtype=torch.uint8)
