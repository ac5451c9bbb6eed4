"""What engines share whose threads, in the training process, make whole batches."""

from abc import ABC, abstractmethod
from collections.abc import Generator

import torch

from strobe.app.engines.base import WholeBatches, read_pinned
from strobe.app.engines.sampler import Indices, ShardedBatches
from strobe.app.loaders.base import Batch, LoadedData
from strobe.callbacks.accelerators import PINNING


class ThreadLoader:
    """Batches made by the engine's threads, or by the training thread if there are none."""

    def __init__(self, engine: "ThreadEngine", dataset: LoadedData, batches: ShardedBatches, pinned: bool) -> None:
        self.engine = engine
        self.dataset = WholeBatches(dataset)
        self.batch_sampler = batches
        self.num_workers = engine.num_workers
        self.prefetch_factor = engine.prefetch_factor if self.num_workers else None
        self.pinned = pinned

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Generator[Batch, None, None]:
        yield from self.engine.beside(self) if self.num_workers else map(self.batch, self.batch_sampler)

    def batch(self, indices: Indices) -> Batch:
        """One batch."""
        pixels, labels = self.dataset.__getitems__(indices)
        return (pixels.pin_memory(), labels.pin_memory()) if self.pinned else (pixels, labels)


class ThreadEngine(ABC):
    """``num_workers`` threads, each with ``prefetch_factor`` batches; ``pin_memory=None`` pins what goes to a GPU."""

    def __init__(self, *, num_workers: int, prefetch_factor: int, pin_memory: bool | None) -> None:
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory

    def loader(self, dataset: LoadedData, batches: ShardedBatches, *, seed: int, device: torch.device) -> ThreadLoader:
        """Batches of ``dataset``; ``seed`` is not used: threads would draw from training's random numbers."""
        pinned = device.type in PINNING and self.pin_memory is not False
        read_pinned(dataset, pinned)
        return ThreadLoader(self, dataset, batches, pinned)

    @abstractmethod
    def beside(self, loader: ThreadLoader) -> Generator[Batch, None, None]:
        """An epoch's batches, made by threads that end with it."""
