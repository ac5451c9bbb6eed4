"""Ranks of a test: each is a thread, and their store a dictionary."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch.distributed as dist

from strobe.probe.ranks import LostRankError, Ranks


def together(*works: Callable[[Ranks], Any]) -> list[Any]:
    """What each rank's work returns, or raises."""
    store = dist.HashStore()

    def run(rank: int) -> Any:
        own = Ranks(store, rank, len(works))
        try:
            return works[rank](own)
        except LostRankError as error:
            return str(error)
        finally:
            own.leave()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, range(len(works))))
