"""What a pipeline from photo files to batches is asked for, what it is while it runs, and how it is timed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import Normalize

from strobe.app.data.image_folder import ImageFolder
from strobe.bench.harness.declare import Done
from strobe.measure.timing import Clock, repeated

LEAST_SECONDS = 0.05  # of a repetition


@dataclass(frozen=True)
class Job:
    """What a pipeline delivers, without an end: all photos in order, again and again.

    One photo at a time has no batch, (C, H, W) or (1, C, H, W); else it is (N, C, H, W). It is uint8 or, standardised,
    float32. A device is that to which it goes; without one it stays where it is.
    """

    data: ImageFolder  # set up; its loader and engine are ours
    cfg: Any  # the configuration that it was built by
    workers: int
    batched: bool
    normalised: bool = False
    device: torch.device | None = None

    @property
    def batch_size(self) -> int:
        """Photos of one item."""
        return self.data.batch_size if self.batched else 1

    @property
    def folder(self) -> str:
        """The class folders of the photos."""
        return str(Path(self.data.root, "train"))

    @property
    def on_gpu(self) -> bool:
        """Whether memory should be pinned on the way."""
        return self.device is not None and self.device.type == "cuda"

    def finish(self, pixels: Tensor) -> Tensor:
        """In the training process: to the device, and standardised there, in place."""
        if self.device is not None:
            pixels = pixels.to(self.device, non_blocking=True)
        return self.data.normalise(pixels) if self.normalised else pixels


@dataclass(frozen=True)
class Pipeline:
    """What runs now."""

    take: Callable[[], Tensor]  # the next item
    holds: int  # items that may lie ready, once it runs


Run = Callable[[Job], AbstractContextManager[Pipeline]]
"""Begins a pipeline; all its processes and threads have ended when the context has."""


class Draining:
    """Takes items for a while and tells the time of one; before that, those that became ready before the clock ran.

    Args:
        take: gives the next item.
        items: that workers deliver in turn, so that a repetition takes a multiple of them.
        holds: how many may lie ready.
        clock: seconds.
    """

    def __init__(self, take: Callable[[], Any], items: int, holds: int, clock: Clock) -> None:
        self._take, self._items, self._ready, self._clock = take, items, holds, clock

    def __call__(self) -> Done:
        """One repetition: the images of an item, and its share of the seconds."""
        block = repeated(
            lambda: _images(self._take()), LEAST_SECONDS, warmup=self._ready, multiple=self._items, clock=self._clock
        )
        self._ready = 0
        return Done(block.images // block.steps, block.seconds / block.steps)


def _images(pixels: Any) -> int:
    return 1 if pixels.ndim == 3 else len(pixels)


def standardiser(job: Job) -> Normalize:
    """``Normalize`` as published: out of place, after division by 255."""
    return Normalize(mean=job.data.mean.tolist(), std=job.data.std.tolist())


def moved(pixels: Tensor, job: Job) -> Tensor:
    """As the published ones do it: the transfer is waited for."""
    return pixels if job.device is None else pixels.to(job.device)
