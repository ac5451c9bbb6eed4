"""Images that are in memory already: CIFAR-10."""

from typing import Any

from torch import Tensor

from callbacks.spans import span
from strobe.loaders.base import ArraySource, Batch, LoadedData, Loader


class MemoryLoader(Loader[ArraySource]):
    """One gather a batch (``batched``), or one image at a time, as the source comparison did."""

    def __init__(self, *, batched: bool, **common: Any) -> None:
        super().__init__(**common)
        self.batched = batched

    def dataset(self, source: ArraySource) -> LoadedData:
        """Items from the tensor of images."""
        return GatheredData(self, source) if self.batched else ArrayData(self, source)


class ArrayData(LoadedData):
    """One image at a time."""

    def __init__(self, loader: MemoryLoader, source: ArraySource) -> None:
        self.loader = loader
        self.source = source

    def __len__(self) -> int:
        return len(self.source.indices)

    def __getitem__(self, index: Any) -> Batch:
        chosen = self.source.indices[index]
        count = chosen.numel()
        with span("read", count):
            pixels = self.source.images[chosen]
        return self.loader.scaled(pixels.numpy(), self.source.full_scale, count), self.source.targets[chosen]


class GatheredData(ArrayData):
    """A whole batch at once: DataLoader calls ``__getitems__`` with the batch's indices."""

    @staticmethod
    def collate(batch: tuple[Tensor, Tensor]) -> Batch:
        """The batch, which is one already."""
        return batch

    def __getitems__(self, indices: list[int]) -> Batch:
        """Pixels (N, C, H, W) and labels (N,)."""
        return self[indices]
