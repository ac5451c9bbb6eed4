"""The loader's ceiling: its batches are taken as fast as it makes them, and nobody trains."""

import multiprocessing
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from strobe.app.data.base import ImageData
from strobe.app.engines.base import WholeBatches
from strobe.app.engines.sampler import Indices
from strobe.app.loaders.base import Batch
from strobe.measure.timing import Meter, Rate, clock
from strobe.measure.untouched import let_go


@dataclass(frozen=True)
class Loading:
    """The ceiling, and one of its batches in memory of this process."""

    rate: Rate
    batch: Batch


def measure_loader(data: ImageData, *, shuffle: bool, seconds: float) -> Loading:
    """Drain the training batches of ``data``, epoch after epoch without a break.

    The workers and what they share are gone when it returns or raises. What a resident split takes to load is not
    counted.

    Args:
        data: set up; its trainer tells the device.
        shuffle: whether the order is shuffled, as in training.
        seconds: at most, from the first batch on.
    """
    others = {child.pid for child in multiprocessing.active_children()}
    loader = data.batches("train", data.batch_size, shuffle=shuffle, endless=True)
    workers: list[int] = []
    device = data.trainer.strategy.root_device if data.trainer else torch.device("cpu")
    meter = Meter(
        seconds,
        multiple=loader.num_workers,
        warmup=loader.num_workers * ((loader.prefetch_factor or 0) + 1) + 2,
        clock=clock(device),
        cpu=lambda: cpu_seconds(workers),
    )
    batches = iter(loader)
    try:
        batch = next(batches)
        workers += sorted(child.pid or 0 for child in multiprocessing.active_children() if child.pid not in others)
        kept = _own(batch)
        while not meter.add(len(batch[1])):
            batch = next(batches)
            if len(kept[1]) != data.batch_size == len(batch[1]):  # the first was the end of an epoch
                kept = _own(batch)
        return Loading(meter.rate(), kept)
    except BaseException as error:
        let_go(error)
        raise
    finally:
        batches.close()  # ends threads
        del batches, loader  # ends worker processes


def load_batch(data: ImageData) -> Batch:
    """One batch of the training images, loaded in this process."""
    dataset = data.datasets["train"]
    count = min(data.batch_size, len(dataset))
    return WholeBatches(dataset).__getitems__(Indices(range(count), split="train", epoch=0, number=0))


def repeat(batch: Batch, size: int) -> Batch:
    """A batch of ``size`` images, made of those of another one."""
    pixels, labels = batch
    times = -(-size // len(labels))
    return pixels.repeat(times, *(1 for _ in pixels.shape[1:]))[:size].contiguous(), labels.repeat(times)[:size]


def cpu_seconds(workers: Iterable[int]) -> float | None:
    """Core-seconds that this process, all its threads, and the workers have used; None where /proc does not tell.

    Linux counts other processes in clock ticks, 10 ms by default (proc(5): fields 14 and 15 of stat).
    """
    total = time.process_time()
    for pid in workers:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _own(batch: Batch) -> Batch:
    """A copy that lies neither in shared nor in pinned memory."""

    def copy(tensor: Tensor) -> Tensor:
        return tensor.clone()

    pixels, labels = batch
    return copy(pixels), copy(labels)
