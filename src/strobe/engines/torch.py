"""Batches by torch's DataLoader: in the training process, or in worker processes."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from callbacks import spans
from strobe.engines.order import Indices, ShardedBatches
from strobe.loaders.base import Batch, LoadedData


class TorchEngine:
    """``torch.utils.data.DataLoader`` over batches of indices.

    ``pin_memory=None`` pins when the batches go to a GPU. Each worker computes on one thread (torch sets
    that), so that ``num_workers`` is the number of cores that loading may take.
    """

    def __init__(
        self,
        *,
        num_workers: int,
        prefetch_factor: int,
        persistent_workers: bool,
        pin_memory: bool | None,
        multiprocessing_context: str | None,
    ) -> None:
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.worker_options: dict[str, Any] = {}
        if num_workers:
            self.worker_options = {
                "prefetch_factor": prefetch_factor,
                "persistent_workers": persistent_workers,
                "multiprocessing_context": multiprocessing_context,
            }

    def loader(self, dataset: LoadedData, batches: ShardedBatches, *, seed: int, device: torch.device) -> "LazyLoader":
        """Batches of ``dataset``; ``seed`` is the workers', whose own seeds follow from it, each different."""
        pin = device.type == "cuda" if self.pin_memory is None else self.pin_memory
        return LazyLoader(
            WholeBatches(dataset),
            batch_sampler=batches,
            collate_fn=_as_it_is,
            num_workers=self.num_workers,
            pin_memory=pin,
            generator=torch.Generator().manual_seed(seed + batches.rank),
            **self.worker_options,
        )


class LazyLoader(DataLoader[Batch]):
    """A DataLoader that begins when its first batch is asked for, not when ``iter`` is called.

    Lightning calls ``iter`` before it has restored where a resumed run stands.
    """

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        yield from super().__iter__()


class WholeBatches(Dataset[Batch]):
    """A data set that makes a batch whole, collated, and records its making for the trace (``callbacks.spans``)."""

    def __init__(self, dataset: LoadedData) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Batch:
        return self.dataset[index]

    def __getitems__(self, indices: Indices) -> Batch:
        """One batch; DataLoader calls this with what its batch sampler gave."""
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


def _as_it_is(batch: Any) -> Any:
    return batch
