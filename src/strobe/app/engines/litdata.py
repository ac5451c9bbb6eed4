"""Batches by threads that mostly wait for storage: each fetches the objects of a whole batch at once, and decodes them.

Objects come by obstore, LitData's own client, and shards are in LitData's form; see ``strobe.app.storage``.
"""

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import torch

from strobe.app.engines.base import WholeBatches, read_pinned
from strobe.app.engines.sampler import ShardedBatches
from strobe.app.engines.spdl import ThreadLoader
from strobe.app.loaders.base import Batch, LoadedData
from strobe.app.loaders.threads import become_worker
from strobe.callbacks.accelerators import PINNING


class LitDataEngine:
    """``num_workers`` threads of the training process, each with ``prefetch_factor`` batches under way or ready.

    It reads local files too. ``pin_memory=None`` pins when the batches go to a GPU.
    """

    def __init__(self, *, num_workers: int, prefetch_factor: int, pin_memory: bool | None) -> None:
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory

    def loader(self, dataset: LoadedData, batches: ShardedBatches, *, seed: int, device: torch.device) -> "FetchLoader":
        """Batches of ``dataset``; ``seed`` is not used: threads would draw from training's random numbers."""
        pinned = device.type in PINNING and self.pin_memory is not False
        read_pinned(dataset, pinned)
        return FetchLoader(self, WholeBatches(dataset), batches, pinned)


class FetchLoader(ThreadLoader):
    """Batches in the order of their indices, made by a pool of threads for each epoch."""

    def __iter__(self) -> Generator[Batch, None, None]:
        if not self.num_workers:
            yield from super().__iter__()
            return
        waiting: deque[Future[Batch]] = deque()
        order = iter(self.batch_sampler)
        with ThreadPoolExecutor(self.num_workers, "loader", become_worker) as pool:

            def ask() -> None:
                with suppress(StopIteration):
                    waiting.append(pool.submit(self.batch, next(order)))

            try:
                for _ in range(self.num_workers * (self.prefetch_factor or 1)):
                    ask()
                while waiting:
                    batch = waiting.popleft().result()
                    ask()
                    yield batch
                    del batch  # or this frame would keep its memory while the next one is waited for
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
