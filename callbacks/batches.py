"""What can be told of a batch, however it is nested."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def size_of(batch: Any) -> int | None:
    """How many samples a batch has: the first dimension of the first tensor that has one, however it is nested.

    So Lightning has it (``extract_batch_size``), but for a list of images, as detectors take them, which counts its
    items. None where no tensor tells.
    """
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else None
    if isinstance(batch, list | tuple) and _are_images(batch):
        return len(batch)
    return next((size for part in _parts(batch) if (size := size_of(part)) is not None), None)


def tensors_of(batch: Any) -> Iterator[Tensor]:
    """All tensors of a batch."""
    if isinstance(batch, Tensor):
        yield batch
    for part in _parts(batch):
        yield from tensors_of(part)


def _are_images(items: Sequence[Any]) -> bool:
    """Whether each item holds a tensor of three dimensions first, of which one is its channels: 3, or 1 if sizes vary.

    A list of other tensors, such as inputs and targets, is a batch of which each tensor has all samples.
    """
    shapes = set[tuple[int, ...]]()
    for item in items:
        tensor = next((one for one in tensors_of(item) if one.ndim), None)
        if tensor is None or tensor.ndim != 3 or len(tensor) not in (1, 3):
            return False
        shapes.add(tuple(tensor.shape))
    channels = {shape[0] for shape in shapes}
    return channels == {3} or (channels == {1} and len(shapes) > 1)


def _parts(batch: Any) -> Iterable[Any]:
    if isinstance(batch, Mapping):
        return batch.values()
    if isinstance(batch, list | tuple):
        return batch
    if is_dataclass(batch):
        return [getattr(batch, one.name, None) for one in fields(batch)]
    return ()
