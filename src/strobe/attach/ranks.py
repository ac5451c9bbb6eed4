"""One directory for all ranks of a training, named by rank 0 with no collective: none waits for a rank that failed."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import torch.distributed

PATIENCE = timedelta(seconds=30)  # in which rank 0 names it, or the others record nothing
_fits = count()  # of this process, among several ranks; all have the same number in one training


def shared_directory(trainer: Any, make: Callable[[], Path]) -> Path | None:
    """The directory that ``make`` gives on rank 0, on each rank; None where rank 0 has none, or did not say so in time.

    It goes through the store by which the ranks found each other, which asks nothing of the other ranks. Raises what
    ``make`` raises.
    """
    if trainer.world_size == 1:
        return make()
    key, store, place = f"strobe/directory/{next(_fits)}", _store(), None
    if trainer.is_global_zero:
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


def _store() -> Any:
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed.distributed_c10d._get_default_store()
