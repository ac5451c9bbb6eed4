"""How many threads a loader may compute on: all of training's in its own thread, one in a worker beside it."""

import threading

import torch
from torch.utils.data import get_worker_info

_local = threading.local()


def become_worker() -> None:
    """Say that the current thread loads beside training; an engine calls this in each of its threads."""
    _local.worker = True


def in_worker() -> bool:
    """Whether the current process or thread is one of several that load."""
    return get_worker_info() is not None or getattr(_local, "worker", False)


def threads() -> int:
    """Threads for one batch: as many as torch computes on, but one in a worker, of which there are as many as cores."""
    return 1 if in_worker() else torch.get_num_threads()
