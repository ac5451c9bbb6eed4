"""Batches by threads that mostly wait for storage: each fetches the objects of a whole batch at once, and decodes them.

Objects come by obstore, LitData's own client, and shards are in LitData's form; see ``strobe.app.storage``.
"""

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from strobe.app.engines.threads import ThreadEngine, ThreadLoader
from strobe.app.loaders.base import Batch
from strobe.app.loaders.threads import become_worker


class FetchLoader(ThreadLoader):
    """Batches in the order of their indices, made by a pool of threads for each epoch."""

    def beside(self) -> Generator[Batch, None, None]:
        """An epoch's batches."""
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


class LitDataEngine(ThreadEngine):
    """A pool of threads for each epoch, whose batches are under way or ready. It reads local files too."""

    loads = FetchLoader
