"""Which rank this is, and one directory for all, named by rank 0 with no collective: none waits for one that failed."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import torch.distributed

from strobe.process import launch

PATIENCE = timedelta(seconds=30)  # in which rank 0 names it, or the others record nothing
_fits = count()  # of this process, among several ranks; all have the same number in one training


def shared_directory(rank: int, ranks: int, make: Callable[[], Path]) -> Path | None:
    """The directory that ``make`` gives on rank 0, on each rank; None where rank 0 has none, or did not say so in time.

    It goes through the store by which the ranks found each other, which asks nothing of the other ranks. Raises what
    ``make`` raises.
    """
    if ranks == 1:
        return make()
    key, store, place = f"strobe/directory/{next(_fits)}", common_store(), None
    if rank == 0:
        try:
            place = make()
        finally:
            if store is not None:
                store.set(key, str(place or ""))
        return place
    if store is None:
        return None
    try:
        store.wait([key], PATIENCE)
    except RuntimeError:  # torch.distributed.DistStoreError is one: it took too long, or rank 0 has gone
        return None
    return Path(found) if (found := store.get(key).decode()) else None


def rank() -> int:
    """The rank of this process, also before it has joined the others."""
    return torch.distributed.get_rank() if _in_group() else launch.rank()


def ranks() -> int:
    """How many have joined."""
    return torch.distributed.get_world_size() if _in_group() else 1


def _in_group() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def common_store() -> Any:
    """The store by which the ranks of this training found each other; None for a process that has not joined any."""
    return torch.distributed.distributed_c10d._get_default_store() if _in_group() else None
