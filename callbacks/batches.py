"""The size of a batch, however it is nested, and how much of it is for nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any

from torch import Tensor, long, strided

MOST = 1024  # parts of a batch that are looked at, so that a step pays for no long list
LARGEST = 1_000_000  # elements of a tensor whose padding is looked for, in a fraction of a millisecond
IGNORED = -100  # the label that cross_entropy ignores by default
SEVERAL = 32  # items, by which a list of images is known, and from which on the ends tell a list of numbers

_PLAIN = (int, float, str, bytes)
_LISTS = (list, tuple)


def size_of(batch: Any) -> int | None:
    """How many samples a batch has: the first dimension of its first tensor that has one.

    This is Lightning's rule (``extract_batch_size``), except that a list of images, as detectors take them, counts its
    items. None if no tensor has a dimension, among the first parts of a large batch.
    """
    first = batch[0] if isinstance(batch, _LISTS) and batch else batch  # as most batches have it, found at once
    if isinstance(first, Tensor) and (first is batch or first.ndim not in (0, 3)):
        return first.shape[0] if first.ndim else None
    budget = iter(range(MOST))
    for part in _walk(batch, budget):
        if isinstance(part, Tensor):
            if part.ndim:
                return len(part)
        elif isinstance(part, _LISTS) and _are_images(part, budget):
            return len(part)
    return None


def elements_of(batch: Any) -> int | None:
    """The number of elements of its tensors; None if it has more parts than are looked at."""
    budget = iter(range(MOST))
    elements = sum([part.numel() for part in _walk(batch, budget) if isinstance(part, Tensor)])
    return elements if next(budget, None) is not None else None


def shapes_of(batch: Any) -> tuple[tuple[int, ...], ...]:
    """The shape of each tensor among its first parts."""
    return tuple([tuple(part.shape) for part in _walk(batch, iter(range(MOST))) if isinstance(part, Tensor)])


def padding_of(batch: Any) -> float | None:
    """The share of a batch's length, its dimension 1, at whose end all of its samples have the same number.

    Of its largest tensor, if that is a batch of sequences on a CPU: of whole numbers, such as tokens, or of vectors.
    None of others: the last columns of a table, or the last channels of images, may well be alike.
    """
    tensors = [part for part in _walk(batch, iter(range(MOST))) if isinstance(part, Tensor)]
    if any(part.layout is not strided or part.is_nested for part in tensors):  # which have no padding
        return None
    largest = max(tensors, key=Tensor.numel, default=None)
    if largest is None or largest.device.type != "cpu" or not 0 < largest.numel() <= LARGEST:
        return None
    if largest.ndim != (3 if largest.is_floating_point() else 2) or len(largest) < 2:
        return None
    differ = (largest != largest.flatten()[-1]).transpose(0, 1).flatten(1).any(1).nonzero()
    return 1 - (int(differ[-1]) + 1 if len(differ) else 0) / largest.shape[1]


def bytes_of(batch: Any) -> tuple[float | None, float | None]:
    """What a batch's tensors hold, on a CPU, and the memory that they keep: of views, all that they are views of.

    None where no tensor is there, as of a batch that is on a GPU already.
    """
    tensors = (part for part in _walk(batch, iter(range(MOST))) if isinstance(part, Tensor))
    plain = [one for one in tensors if one.device.type == "cpu" and one.layout is strided and not _is_wrapped(one)]
    if not plain:
        return None, None
    kept = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in plain}
    return float(sum(one.nbytes for one in plain)), float(sum(kept.values()))


def ignored_of(batch: Any) -> float | None:
    """The share of a batch's labels that ``cross_entropy`` ignores, for sequences on a CPU; None without any."""
    tensors = (part for part in _walk(batch, iter(range(MOST))) if isinstance(part, Tensor))
    labels = (one for one in tensors if one.dtype == long and one.ndim > 1 and one.layout is strided)
    small = (one for one in labels if one.device.type == "cpu" and not one.is_nested and one.numel() <= LARGEST)
    return max(filter(None, (float((one == IGNORED).float().mean()) for one in small)), default=None)


def _is_wrapped(tensor: Tensor) -> bool:
    """Whether it has no memory of its own, such as a nested one or a subclass that holds other tensors."""
    return tensor.is_nested or type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__


def _walk(batch: Any, budget: Iterator[int]) -> Iterator[Any]:
    """A batch and its parts, depth first, until the budget is used up."""
    left = [batch]
    for _ in budget:
        yield (part := left.pop())
        left += reversed(_parts(part))
        if not left:
            return


def _are_images(items: Sequence[Any], budget: Iterator[int]) -> bool:
    """Whether each item's first tensor has three dimensions, one of them the channels: 3, or 1 if sizes vary.

    In a list of other tensors, such as inputs and targets, each tensor has all samples.
    """
    shapes = set[tuple[int, ...]]()
    for item in items[:SEVERAL]:
        parts = [item] if isinstance(item, Tensor) else _walk(item, budget)
        tensor = next((one for one in parts if isinstance(one, Tensor) and one.ndim), None)
        if tensor is None or tensor.ndim != 3 or len(tensor) not in (1, 3):
            return False
        shapes.add(tuple(tensor.shape))
    channels = {shape[0] for shape in shapes}
    return channels == {3} or (channels == {1} and len(shapes) > 1)


def _parts(batch: Any) -> list[Any]:
    if isinstance(batch, Tensor):
        return []
    if isinstance(batch, Mapping):
        return list(islice(batch.values(), MOST))
    if isinstance(batch, _LISTS):
        plain = len(batch) > SEVERAL and isinstance(batch[0], _PLAIN) and isinstance(batch[-1], _PLAIN)
        return [] if plain else list(batch[:MOST])
    if is_dataclass(batch):
        return [getattr(batch, one.name, None) for one in fields(batch)]
    return []
