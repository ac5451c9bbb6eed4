"""Batches by torch's DataLoader: in the training process, or in worker processes."""

import copy
import re
import resource
import shutil
import signal
from collections.abc import Generator, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch.utils.data import DataLoader

from strobe.app.engines.base import WholeBatches, read_pinned
from strobe.app.engines.sampler import ShardedBatches
from strobe.app.loaders.base import Batch, BatchData, LoadedData
from strobe.callbacks.accelerators import PINNING
from strobe.errors import DataError


class TorchEngine:
    """``torch.utils.data.DataLoader`` over batches of indices.

    ``pin_memory=None`` pins when the batches go to a GPU. Each worker computes on one thread (set by torch), so loading
    uses at most ``num_workers`` cores.
    """

    def __init__(
        self,
        *,
        num_workers: int,
        pin_memory: bool | None,
        prefetch_factor: int = 2,
        persistent_workers: bool = False,
        multiprocessing_context: str | None = None,
    ) -> None:
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        options = {
            "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers,
            "multiprocessing_context": multiprocessing_context,
        }
        self.worker_options: dict[str, Any] = options if num_workers else {}

    def loader(self, dataset: LoadedData, batches: ShardedBatches, *, seed: int, device: torch.device) -> "LazyLoader":
        """Batches of ``dataset``; the workers' seeds derive from ``seed``, each different."""
        pin = device.type in PINNING if self.pin_memory is None else self.pin_memory
        read_pinned(dataset, pin and device.type in PINNING and not self.num_workers)  # else DataLoader's thread copies
        options = self.worker_options
        if options and getattr(dataset, "fetches", False):
            options = {"multiprocessing_context": "spawn", **{key: kept for key, kept in options.items() if kept}}
        return LazyLoader(
            WholeBatches(dataset),
            batch_sampler=batches,
            collate_fn=BatchData.collate,  # type: ignore[arg-type]
            num_workers=self.num_workers,
            pin_memory=pin,
            generator=torch.Generator().manual_seed(seed + batches.rank),
            **options,
        )


class LazyLoader(DataLoader[Batch]):
    """A DataLoader that starts at the first request for a batch, not when ``iter`` is called.

    A second iteration during the first one has its own workers. Raises a :class:`DataError` if a worker process was
    killed, or shared memory or open files ran out.
    """

    _iterating = False

    def __iter__(self) -> Generator[Batch, None, None]:  # type: ignore[override]
        if self._iterating and self.persistent_workers:  # which serve one iterator at a time
            other = copy.copy(self)
            other._iterating, other._iterator = False, None
            yield from other
            return
        self._iterating = True
        try:
            yield from self._batches()
        finally:
            self._iterating = False

    def _batches(self) -> Generator[Batch, None, None]:
        batches: Any = super().__iter__()
        try:
            yield from batches
        except Exception as error:
            workers = getattr(batches, "_workers", ())
            try:
                explained = lost_batch(error, workers)
            except RuntimeError as again:  # from torch's signal handler, a moment later
                explained = lost_batch(again, workers)
            if self.num_workers:  # now: freed later with the error's frames, each of them would be waited for 5 s
                batches._shutdown_workers()
                self._iterator = None
            if explained is None:
                raise
            raise explained from error


def lost_batch(error: BaseException, workers: Sequence[BaseProcess] = ()) -> DataError | None:
    """What to do about an error of torch's in passing batches from workers to training; None for any other error.

    torch raises some of them in a signal handler, at any point of training, for example when one of ``workers`` ends.
    """
    if not isinstance(error, RuntimeError | OSError | EOFError):
        return None
    text = str(error)
    if "ancdata" in text or "Too many open files" in text:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return DataError(
            f"the batches that workers keep ready use up the {soft} files that this process may hold open; allow more "
            "with `ulimit -n 65536`, or lower engine.num_workers or engine.prefetch_factor"
        )
    if isinstance(error, OSError | EOFError):  # a worker hung up, and may be just about to end
        ready = wait([worker.sentinel for worker in workers], timeout=1)
        for worker in workers:
            if worker.sentinel in ready:  # its files are closed a moment before it has ended
                worker.join(1)
    ended = [worker for worker in workers if worker.exitcode]
    full = r"out of shared memory|(shared memory|/torch_).*No space left"
    if re.search(full, text) or any(worker.exitcode == -signal.SIGBUS for worker in ended):
        return full_shared_memory()
    lost = re.search(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by signal: (\w[\w ]*)|exited)", text)
    if not lost and not ended:
        return None
    pid = lost[1] if lost else ended[0].pid
    how = f"was killed ({lost[2]})" if lost and lost[2] else "ended unexpectedly"
    return DataError(
        f"the loader worker with process id {pid} {how}: often memory ran out; lower "
        "engine.num_workers or data.batch_size, or find the cause with engine.num_workers=0"
    )


def full_shared_memory() -> DataError:
    """What to do where /dev/shm cannot hold what workers and training pass to each other."""
    free = shutil.disk_usage("/dev/shm").free / 1e6
    return DataError(
        f"worker processes cannot hand over their batches: /dev/shm, with {free:,.0f} MB free, was full; lower "
        "engine.num_workers or data.batch_size, or enlarge it (Docker: --shm-size)"
    )
