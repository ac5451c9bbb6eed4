"""What tensors hold, and where in memory."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

LARGE, LOOKED_AT = 100_000, 100_000  # numbers of a factor that is looked at, and about as many of a larger one
COMPARED = 1_000_000  # numbers of rows, at most
_SMALL = 24  # powers of two above the denormal numbers: products of such numbers with ordinary ones may be denormal
_BITS = {  # of each type: integers of its size, all bits but the sign, and the lowest bit of the exponent
    torch.float64: (torch.int64, 2**63 - 1, 2**52),
    torch.float32: (torch.int32, 2**31 - 1, 2**23),
    torch.bfloat16: (torch.int16, 2**15 - 1, 2**7),
}


def followed(values: Iterable[Any]) -> list[Tensor]:
    """Those that are tensors in memory of their own."""
    return [one for one in values if is_followed(one)]


def is_followed(value: Any) -> bool:
    """Whether it is a tensor that lies in memory of its own: no sparse, nested or fake one."""
    return isinstance(value, Tensor) and value.layout is torch.strided and not value.is_nested and value.is_cpu


def number_of(tensor: Tensor) -> int:
    """Which memory a tensor lies in; tensors that share it have the same number."""
    return int(tensor.untyped_storage()._cdata)


def _some(tensor: Tensor) -> Tensor:
    """At most about ``LOOKED_AT`` of its numbers, evenly spread, in a row."""
    return tensor.detach().reshape(-1)[:: tensor.numel() // LOOKED_AT | 1]


def digest(tensor: Tensor) -> int:
    """A hash of some of the numbers that a tensor holds."""
    return hash(_some(tensor).resolve_conj().resolve_neg().contiguous().view(torch.uint8).numpy().tobytes())


def room_of(tensor: Tensor) -> int:
    """How many numbers of its type its memory holds: fewer than the tensor where it is expanded."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def part_of_memory(tensor: Tensor) -> range:
    """The bytes of its memory that a tensor takes, from the first to the last."""
    count, each = tensor.numel(), tensor.element_size()
    if count and not tensor.is_contiguous():
        count = 1 + sum((side - 1) * stride for side, stride in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.storage_offset() * each
    return range(begin, begin + count * each)


def width_of(tensor: Tensor) -> int:
    """How many numbers each row has, of the last dimension before it was transposed; 0 for a single number."""
    transposed = tensor.ndim > 1 and tensor.stride(-2) == 1 != tensor.stride(-1)
    return tensor.shape[-2 if transposed else -1] if tensor.ndim else 0


def alike_of(tensor: Tensor) -> float:
    """Of its rows, or samples, the share that equal an earlier one; rows of zeros count as different."""
    if tensor.numel() < LARGE or not tensor.is_floating_point():
        return 0.0
    every = len(tensor) // max(1, COMPARED // tensor[0].numel()) | 1
    rows = tensor.detach()[::every].float().flatten(1).contiguous()
    random = torch.Generator().manual_seed(0)  # none of the training's own
    weights = torch.randint(2**62, rows.shape[1:], generator=random, device="cpu")
    sums = (rows.view(torch.int32) * weights).sum(1)  # of their bits: those of unequal rows hardly ever agree
    sums = sums[sums != 0]
    return (len(sums) - len(torch.unique(sums))) / len(rows)


def has_denormals(tensor: Tensor) -> bool:
    """Whether some of its numbers are so close to zero, 1e-38 for most types, that their exponent is zero."""
    return tensor.dtype in _BITS and bool(_denormal(_some(tensor).resolve_neg()).any())


def without_denormals(tensor: Tensor) -> Tensor:
    """A copy with zeros in their place, and in that of numbers so small that products with them are often denormal."""
    copy = tensor.detach().resolve_neg().clone()
    return copy.masked_fill_(_denormal(copy, _SMALL), 0) if copy.dtype in _BITS else copy


def _denormal(tensor: Tensor, times: int = 1) -> Tensor:
    """A mask of its denormal numbers, by their bits: a processor that flushes them compares them as zeros.

    Also of those whose exponent is less than so many steps above theirs.
    """
    integers, unsigned, exponent = _BITS[tensor.dtype]
    bits = tensor.view(integers) & unsigned
    return (bits > 0) & (bits < times * exponent)


def zeros_of(tensor: Tensor) -> float:
    """The share of zeros among a tensor's numbers."""
    some = _some(tensor)
    return 1 - int(some.count_nonzero()) / some.numel() if some.numel() else 0.0
