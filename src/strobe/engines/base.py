"""What every engine promises."""

from collections.abc import Iterator
from typing import Protocol

import torch

from strobe.engines.order import ShardedBatches
from strobe.loaders.base import Batch, LoadedData


class BatchLoader(Protocol):
    """One epoch's batches each time it is iterated over; begins when the first batch is asked for."""

    num_workers: int  # processes or threads that load beside training
    prefetch_factor: int | None  # batches that each of them keeps ready
    batch_sampler: ShardedBatches  # Lightning tells its sampler the epoch

    def __iter__(self) -> Iterator[Batch]: ...

    def __len__(self) -> int: ...


class Engine(Protocol):
    """How loading overlaps training."""

    def loader(self, dataset: LoadedData, batches: ShardedBatches, *, seed: int, device: torch.device) -> BatchLoader:
        """Batches of ``dataset`` in the order that ``batches`` gives.

        Args:
            dataset: what is loaded.
            batches: the indices of each batch.
            seed: of random numbers that workers draw, each worker different ones.
            device: on which it is trained.
        """
