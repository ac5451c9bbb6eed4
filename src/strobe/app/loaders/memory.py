"""Images that are in memory already: CIFAR-10."""

from typing import Any

import torch
from torch import Tensor

from strobe.app.loaders.base import Batch, BatchData, LoadedData, Loader, Selection
from strobe.app.loaders.sources import ArraySource
from strobe.callbacks.spans import span


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

    loader: MemoryLoader
    source: ArraySource

    def __getitem__(self, index: int) -> Batch:
        chosen = self.source.indices[index]
        with span("read", 1):
            pixels = self.source.images[chosen]
        return self.loader.scaled(pixels, self.source.full_scale), self.source.targets[chosen]


class GatheredData(BatchData):
    """A whole batch at once."""

    loader: MemoryLoader
    source: ArraySource

    def __init__(self, loader: MemoryLoader, source: ArraySource) -> None:
        super().__init__(loader, source)
        self.shape, self.dtype = source.images.shape[1:], source.images.dtype

    def fill(self, pixels: Tensor, selection: Selection) -> None:
        """One gather."""
        with span("read", len(pixels)):
            torch.index_select(self.source.images, 0, selection.images, out=pixels)
