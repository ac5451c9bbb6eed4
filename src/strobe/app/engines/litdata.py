"""Batches by threads that mostly wait for storage: each fetches the objects of a whole batch at once, and decodes them.

Objects come by obstore, LitData's own client, and shards are in LitData's form; see ``strobe.app.storage``.
"""

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from strobe.app.engines.threads import ThreadEngine, ThreadLoader
from strobe.app.loaders.base import Batch
from strobe.app.loaders.threads import become_worker


class LitDataEngine(ThreadEngine):
    """A pool of threads for each epoch, whose batches are under way or ready. It reads local files too."""

    def beside(self, loader: ThreadLoader) -> Generator[Batch, None, None]:
        """An epoch's batches, in the order of their indices."""
        order = iter(loader.batch_sampler)
        with ThreadPoolExecutor(self.num_workers, "loader", become_worker) as pool:
            asked = (pool.submit(loader.batch, indices) for indices in order)
            try:
                waiting = deque(islice(asked, self.num_workers * self.prefetch_factor))
                while waiting:
                    batch = waiting.popleft().result()
                    waiting.extend(islice(asked, 1))
                    yield batch
                    del batch  # or this frame would keep its memory while the next one is waited for
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
