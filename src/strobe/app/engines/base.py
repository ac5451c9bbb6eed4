"""What every engine promises."""

from collections.abc import Generator
from typing import Any, Protocol

import torch
from torch.utils.data import Dataset

from strobe.app.engines.sampler import Indices, ShardedBatches
from strobe.app.loaders.base import Batch, BatchData, LoadedData
from strobe.callbacks import spans


class BatchLoader(Protocol):
    """One epoch's batches per iteration; starts at the first request for a batch.

    Not earlier, because Lightning calls ``iter`` before it restores the position of a resumed run. An interrupted epoch
    ends with its iterator, or when that is closed.
    """

    num_workers: int  # processes or threads that load beside training
    prefetch_factor: int | None  # batches that each of them keeps ready
    batch_sampler: ShardedBatches  # Lightning tells its sampler the epoch

    def __iter__(self) -> Generator[Batch, None, None]: ...

    def __len__(self) -> int: ...


class Engine(Protocol):
    """How loading overlaps training."""

    def loader(self, dataset: LoadedData, batches: ShardedBatches, *, seed: int, device: torch.device) -> BatchLoader:
        """Batches of ``dataset`` in the order of ``batches``, for training on ``device``.

        ``seed``: for the random numbers of worker processes, each with its own.
        """


class WholeBatches(Dataset[Batch]):
    """A data set of whole, collated batches, which records for the trace how each is made (``callbacks.spans``)."""

    def __init__(self, dataset: LoadedData) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Batch:
        return self.dataset[index]

    def __getitems__(self, indices: Indices) -> Batch:
        """One batch; DataLoader calls this with what its sampler gives."""
        with spans.batch_span(indices.epoch, indices.number, len(indices), indices.split):
            together = getattr(self.dataset, "__getitems__", None)
            items = together(indices) if together else [self.dataset[index] for index in indices]
            with spans.span("collate", len(indices)):
                return self.dataset.collate(items)

    def __getstate__(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "folder": spans.folder()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.dataset = state["dataset"]
        spans.join(state["folder"])  # a worker process that does not fork


def read_pinned(dataset: LoadedData, pinned: bool) -> None:
    """Let data sets of whole batches in this process use pinned memory, or stop."""
    if isinstance(dataset, BatchData):
        dataset.buffers.pinned = pinned
