"""Reused memory: new memory costs a page fault every 4 KiB, most of the cost of a large batch."""

import threading
from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.utils.data import get_worker_info

MOST = 64  # buffers kept: this many batches may be in flight


class BufferPool:
    """Uninitialised tensors, in memory that is no longer in use.

    A buffer is reused only when no tensor or view refers to its storage, so a batch that you keep keeps its pixels. A
    buffer that was shared with another process is never reused. In a DataLoader worker each tensor is new and in shared
    memory, because the training process reads it there. Pinned memory comes from torch's own cache, which knows when a
    transfer is done with it; ``pinned`` if nothing else pins. Several threads may use it; a copy in another process
    starts empty.
    """

    def __init__(self) -> None:
        self.pinned = False  # only in the training process
        self._kept: list[UntypedStorage] = []
        self._lock = threading.Lock()

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor on the CPU with arbitrary content."""
        if get_worker_info() is not None:
            return shared(shape, dtype)
        if self.pinned:
            return torch.empty(*shape, dtype=dtype, pin_memory=True)
        size = prod(shape) * dtype.itemsize
        with self._lock:
            for place, storage in enumerate(self._kept):
                if storage.nbytes() >= size and _users(storage) == 1 and not storage.is_shared():
                    self._kept.append(self._kept.pop(place))  # the newest is warmest, and is dropped last
                    return _over(storage, shape, dtype)
            self._kept = [storage for storage in self._kept if _users(storage) > 1][1 - MOST :]
            self._kept.append(torch.empty(size, dtype=torch.uint8).untyped_storage())
            return _over(self._kept[-1], shape, dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return BufferPool, ()


def _over(storage: UntypedStorage, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape))  # type: ignore[call-overload,no-any-return]


def shared(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A contiguous tensor in new memory, shared with the workers that this process starts, forked or spawned."""
    return _over(UntypedStorage._new_shared(prod(shape) * dtype.itemsize), shape, dtype)  # type: ignore[no-untyped-call]


def _users(storage: UntypedStorage) -> int:
    """The number of tensors that refer to it, plus 1 for the storage object itself."""
    return int(torch._C._storage_Use_Count(storage._cdata))
