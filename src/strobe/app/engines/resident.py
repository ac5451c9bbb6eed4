"""Batches gathered on the training device, where the whole split is."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any
from weakref import WeakKeyDictionary

import torch
from rich.filesize import decimal
from torch import Tensor

from strobe.app.config.schema import ONE_CROP
from strobe.app.engines.base import WholeBatches
from strobe.app.engines.sampler import EpochSampler, Indices, ShardedBatches
from strobe.app.engines.torch import TorchEngine
from strobe.app.loaders.base import Batch, LoadedData
from strobe.app.loaders.buffer_pool import BufferPool
from strobe.app.loaders.sources import ArraySource
from strobe.callbacks import spans
from strobe.callbacks.accelerators import module_of
from strobe.errors import ConfigError
from strobe.measure import environment

log = logging.getLogger(__name__)

AT_ONCE = 256  # images loaded as one batch
BATCHES = 2  # the room needed beside the splits, as loaded and as float32
REPORT = 10.0  # seconds between lines of progress


@dataclass(frozen=True)
class Split:
    """A split in the device's memory."""

    pixels: Tensor  # (N, C, H, W), never written to again
    labels: Tensor  # (N,) int64


class ResidentEngine:
    """Loads a split when its first batch is asked for; from then on each batch is one gather on the device.

    ``num_workers`` processes load it, and end before training. Each rank holds whole splits. A split's memory is freed
    with its data set. The first split is refused unless all splits requested by then fit: with Lightning, those of
    training and validation. ``dry_step`` trains on images (N, C, H, W) and forgets it; what this takes on a GPU must
    fit beside the splits.
    """

    dry_step: Callable[[Tensor], object] | None = None

    def __init__(self, *, num_workers: int) -> None:
        self.first = TorchEngine(num_workers=num_workers, pin_memory=False)
        self._splits: WeakKeyDictionary[LoadedData, dict[torch.device, Split]] = WeakKeyDictionary()
        self._expected: WeakKeyDictionary[LoadedData, dict[torch.device, tuple[str, int]]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:  # another process loads its own splits
        return partial(type(self), num_workers=self.first.num_workers), ()

    def loader(
        self, dataset: LoadedData, batches: ShardedBatches, *, seed: int, device: torch.device
    ) -> "ResidentLoader":
        """Batches of ``dataset`` on the device; raises a ConfigError if images change from epoch to epoch."""
        if dataset.varies:
            framing = getattr(getattr(getattr(dataset, "source", None), "framing", None), "kind", "random")
            raise ConfigError(ONE_CROP.format(choice="engine=resident", framing=framing))
        self._expected.setdefault(dataset, {})[device] = batches.split, batches.batch_size
        return ResidentLoader(self, dataset, batches, device)

    def split(self, dataset: LoadedData, batches: ShardedBatches, device: torch.device) -> Split:
        """All of ``dataset`` on the device, loaded the first time.

        Raises a :class:`ConfigError` if it does not fit together with the splits that are still to be loaded.
        """
        held = self._splits.setdefault(dataset, {})
        if device not in held:
            began = time.monotonic()
            held[device] = self._load(dataset, batches, device)
            size, seconds = held[device].pixels.nbytes, time.monotonic() - began
            log.info("%s images (%s) are resident on %s after %.1f s", batches.split, decimal(size), device, seconds)
        return held[device]

    def _load(self, dataset: LoadedData, batches: ShardedBatches, device: torch.device) -> Split:
        count = len(dataset)
        first = _first_image(dataset, batches.split)
        self._check_memory(device)
        source = getattr(dataset, "source", None)
        if isinstance(source, ArraySource) and first.dtype == source.images.dtype:
            return Split(source.images[source.indices].to(device), source.labels.to(device))
        pixels = torch.empty(count, *first.shape[1:], dtype=first.dtype, device=device)
        labels = torch.empty(count, dtype=torch.int64, device=device)
        order = ShardedBatches(EpochSampler(count, shuffle=False, seed=0), AT_ONCE, split=batches.split)
        done, reported = 0, time.monotonic()
        for loaded, classes in self.first.loader(dataset, order, seed=0, device=torch.device("cpu")):
            pixels[done : done + len(classes)].copy_(loaded)
            labels[done : done + len(classes)].copy_(classes)
            done += len(classes)
            if time.monotonic() - reported > REPORT:
                reported = time.monotonic()
                log.info("Loading %s images to %s: %d of %d", batches.split, device, done, count)
        return Split(pixels, labels)

    def _check_memory(self, device: torch.device) -> None:
        splits: Counter[str] = Counter()
        batch = step = 0
        for dataset, devices in list(self._expected.items()):
            if device not in devices or device in self._splits.get(dataset, {}):
                continue
            split, batch_size = devices[device]
            image = _first_image(dataset, split)
            splits[split] += len(dataset) * image.nbytes
            images = min(len(dataset), batch_size)
            batch = max(batch, images * (image.nbytes + image.numel() * torch.float32.itemsize))
            if split == "train" and self.dry_step is not None and device.type not in ("cpu", "mps"):
                step = peak(partial(self.dry_step, torch.zeros(images, *image.shape[1:], device=device)), device)
        require_memory(splits, BATCHES * batch, device, step=step)


def _first_image(dataset: LoadedData, split: str) -> Tensor:
    """The pixels (1, C, H, W) of a data set's first image."""
    return WholeBatches(dataset).__getitems__(Indices([0], split=split, epoch=0, number=0))[0]


class ResidentLoader:
    """Batches gathered from a split; an epoch's order is sent to the device once."""

    num_workers = 0
    prefetch_factor = None

    def __init__(
        self, engine: ResidentEngine, dataset: LoadedData, batch_sampler: ShardedBatches, device: torch.device
    ) -> None:
        self.engine = engine
        self.dataset = dataset
        self.batch_sampler = batch_sampler
        self.device = device
        self.buffers = BufferPool()  # for batches in the CPU's memory; on a GPU torch keeps memory for the next ones

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Generator[Batch, None, None]:
        split = self.engine.split(self.dataset, self.batch_sampler, self.device)
        batches = iter(self.batch_sampler)
        while epoch := list(islice(batches, len(self.batch_sampler))):  # there may be no end of epochs
            order = torch.tensor(list(chain.from_iterable(epoch))).to(self.device)
            for indices, rows in zip(epoch, torch.split(order, [len(indices) for indices in epoch]), strict=True):
                with spans.batch_span(indices.epoch, indices.number, len(indices), indices.split):
                    batch = self._gather(split.pixels, rows), split.labels[rows]
                yield batch
                del batch

    def _gather(self, images: Tensor, rows: Tensor) -> Tensor:
        """The rows (N, C, H, W) of ``images``, in new or reused memory."""
        with spans.span("read", len(rows)):
            source = images.view(torch.int16) if images.dtype == torch.uint16 else images  # which torch cannot gather
            if self.device.type != "cpu":
                return source.index_select(0, rows).view(images.dtype)
            batch = self.buffers.take((len(rows), *images.shape[1:]), source.dtype)
            return torch.index_select(source, 0, rows, out=batch).view(images.dtype)


def peak(work: Callable[[], object], device: torch.device) -> int:
    """The most bytes that work takes on a GPU beside what lies there."""
    module = module_of(device)
    module.reset_peak_memory_stats(device)
    before = module.memory_allocated(device)
    work()
    return int(module.max_memory_allocated(device) - before)


def require_memory(splits: Mapping[str, int], batches: int, device: torch.device, *, step: int = 0) -> None:
    """Raise a :class:`ConfigError` if splits, batches and a training step, in bytes, do not fit into the device."""
    free = free_memory(device)
    needed = sum(splits.values()) + batches + step
    if free is not None and needed > free:
        parts = ", ".join(f"{part} {decimal(size)}" for part, size in [*splits.items(), ("batches", batches)])
        parts += f", training on them {decimal(step)}" if step else ""
        raise ConfigError(
            f"engine=resident does not fit: the images take {decimal(needed)} ({parts}), "
            f"and {decimal(free)} are free on {device}; set engine=torch, or load fewer bands or smaller images"
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated, on a GPU or in this container; None if unknown."""
    module = module_of(device)
    if hasattr(module, "mem_get_info"):  # not of MPS, whose memory is the CPU's
        return int(module.mem_get_info(device)[0] + module.memory_reserved(device) - module.memory_allocated(device))
    return environment.free_memory()
