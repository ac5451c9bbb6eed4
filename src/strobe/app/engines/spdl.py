"""Batches by SPDL (https://facebookresearch.github.io/spdl): in threads of the training process."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from strobe.app.engines.sampler import Indices
from strobe.app.engines.threads import ThreadEngine, ThreadLoader
from strobe.app.loaders.base import Batch
from strobe.app.loaders.threads import become_worker
from strobe.errors import DataError

Result = TypeVar("Result")
POLL = 0.001  # seconds between checks for the end of an epoch


@dataclass
class _End:
    batches: int  # how many there were


@dataclass
class _Failure:
    error: BaseException


def _attempt(make: Callable[[], Result]) -> Result | _Failure:
    """The batch, or its error: SPDL must not see errors, because it waits forever after a ``SystemExit``."""
    try:
        return make()
    except BaseException as error:
        return _Failure(error)


_UNMADE = object()  # in place of a batch that is no longer wanted


class Epoch:
    """One epoch's pipeline and its threads.

    An error is passed on as a result, so it arrives in its batch's place, as it was raised. To end an epoch early, no
    more batches are made, and those under way are taken: SPDL then stops at once, not up to 0.1 s later.
    """

    def __init__(self, loader: ThreadLoader, *, ordered: bool) -> None:
        from spdl.pipeline import AsyncQueue, PipelineBuilder

        workers = loader.num_workers
        self._loader = loader
        self._had = 0
        self._end: int | None = None
        self._stopping = threading.Event()  # no more batches are made
        self._over = threading.Event()  # all results were taken
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="loader", initializer=become_worker)
        order = "input" if ordered else "completion"
        ready = max(1, ((loader.prefetch_factor or 1) - 1) * workers)
        builder: Any = PipelineBuilder()
        self._pipeline = (
            builder.add_source(self._source(), continuous=False)
            .pipe(self._work, executor=self._threads, concurrency=workers, output_order=order)
            .add_sink(ready)
            .build(num_threads=1, max_failures=0, task_hook_factory=lambda _: [], queue_class=AsyncQueue)
        )
        self._pipeline.start()

    def __iter__(self) -> Iterator[Batch]:
        while True:
            result = self._take()
            if isinstance(result, _Failure):
                raise result.error
            if not isinstance(result, _End):
                yield result
            del result  # or this frame would keep a batch's memory while the next one is waited for
            if self._had == self._end:
                return

    def stop(self) -> None:
        """End the threads, after the batch that each is making."""
        self._stopping.set()
        try:
            with suppress(EOFError):
                while self._had != self._end:
                    self._take()
        finally:
            self._over.set()
            self._pipeline.stop()
            self._threads.shutdown()

    def _take(self) -> Any:
        """The next result: a batch, a failure, the end, or, when stopping, nothing."""
        result = self._pipeline.get_item()
        if isinstance(result, _End):
            self._end = result.batches
        else:
            self._had += 1
        return result

    async def _source(self) -> AsyncIterator[Indices | _Failure | _End]:
        count, order = 0, iter(self._loader.batch_sampler)
        while not self._stopping.is_set():
            task = _attempt(lambda: next(order, None))
            if task is None:
                break
            count += 1
            yield task
            if isinstance(task, _Failure):
                break
        yield _End(count)
        while not self._over.is_set():
            await asyncio.sleep(POLL)

    def _work(self, task: Indices | _Failure | _End) -> Any:
        if not isinstance(task, Indices):
            return task
        if self._stopping.is_set():
            return _UNMADE
        return _attempt(lambda: self._loader.batch(task))


class SpdlEngine(ThreadEngine):
    """An SPDL pipeline for each epoch. Its items are whole batches, which cost about 0.2 ms each beside their loading.

    Batches are passed on without a copy, and decoders that release Python's lock run in parallel. Unless ``ordered``,
    batches come as soon as they are ready. Raises a :class:`DataError` if SPDL is not installed.
    """

    def __init__(self, *, ordered: bool, **common: Any) -> None:
        try:
            import spdl.pipeline  # noqa: F401
        except ImportError as error:
            raise DataError(f"engine=spdl cannot be used ({error}); install SPDL with: pip install '.[spdl]'") from None
        super().__init__(**common)
        self.ordered = ordered

    def beside(self, loader: ThreadLoader) -> Generator[Batch, None, None]:
        """An epoch's batches, of a pipeline of its own."""
        epoch = Epoch(loader, ordered=self.ordered)
        try:
            yield from epoch
        finally:
            epoch.stop()
