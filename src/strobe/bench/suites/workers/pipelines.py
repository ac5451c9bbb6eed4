"""From photo files to batches by a number of workers: torch's DataLoader and SPDL, as published and tuned, and ours.

The published ones are those of SPDL's example ``multi_thread_preprocessing``. All resize whole photos to squares, and
standardise by the data set's mean and standard deviation.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import cycle
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, default_collate
from torchvision.datasets import ImageFolder as Photos
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import Compose, PILToTensor, Resize
from torchvision.transforms.v2.functional import resize

from strobe.app.build.trainer import lone_trainer
from strobe.bench.suites.workers.jobs import Job, Pipeline, Run, moved, standardiser
from strobe.bench.suites.workers.spdl import spdl_batches, spdl_source

PREFETCH = 4  # batches for each worker of a tuned DataLoader, twice torch's default


class Endless(Sampler[int]):
    """Indices in order, again and again."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return cycle(range(self.size))


@contextmanager
def torch_source(job: Job) -> Iterator[Pipeline]:
    """The published DataLoader: Pillow, standardised in the workers, float32 between processes, one batch ahead."""
    size = (job.data.size, job.data.size)
    photos = Photos(job.folder, transform=Compose([Resize(size), PILToTensor()]))
    standardise = standardiser(job)

    def collate(items: list[Any]) -> Any:
        pixels, labels = default_collate(items)
        return (standardise(pixels.float() / 255) if job.normalised else pixels), labels

    with _dataloader(job, photos, collate_fn=collate if job.batched else None, prefetch_factor=1) as batches:
        yield Pipeline(lambda: moved(next(batches)[0], job), holds=2 * job.workers)


@contextmanager
def torch_tuned(job: Job) -> Iterator[Pipeline]:
    """A DataLoader with all that is known to help, on a data set written by hand.

    The quicker decoder for each photo, uint8 between processes, several batches ahead, pinned memory for a GPU, and
    standardised in the training process or on its GPU. torch lets each worker compute on one thread.
    """
    photos = Photos(job.folder, loader=lambda path: decode_quickly(path, job.data.size))
    options: dict[str, Any] = {"prefetch_factor": PREFETCH, "persistent_workers": True, "pin_memory": job.on_gpu}
    with _dataloader(job, photos, **options) as batches:
        yield Pipeline(lambda: job.finish(next(batches)[0]), holds=PREFETCH * job.workers)


def decode_quickly(path: str, size: int) -> Tensor:
    """A whole photo as (3, size, size) uint8, by what torch's users have.

    Pillow where it can halve the photo while it decodes it (``draft``: DCT scaling), else torchvision.
    """
    with Image.open(path) as photo:
        if photo.format != "JPEG" or min(photo.size) >= 2 * size:
            photo.draft("RGB", (size, size))
            small = photo.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
            return torch.from_numpy(np.array(small)).permute(2, 0, 1)
    whole: Tensor = decode_jpeg(torch.from_numpy(np.fromfile(path, dtype=np.uint8)), ImageReadMode.RGB)
    resized: Tensor = resize(whole, [size, size], antialias=True)
    return resized


@contextmanager
def ours(job: Job) -> Iterator[Pipeline]:
    """The DataModule's own batches, by its loader and engine, as a training gets them; standardised as there."""
    if job.on_gpu:
        job.data.trainer = lone_trainer(job.cfg)  # which tells the device, for which engines pin memory
    loader: Any = job.data.batches("train", job.batch_size, endless=True)
    ahead = loader.num_workers * ((loader.prefetch_factor or 0) + 1)
    try:
        with closing(iter(loader)) as batches:
            yield Pipeline(lambda: job.finish(next(batches)[0]), holds=ahead)
    finally:
        end_workers(getattr(loader, "_iterator", None))  # of torch, which persist


PIPELINES: dict[str, Run] = {
    "torch": torch_source,
    "torch_tuned": torch_tuned,
    "spdl": spdl_source,
    "spdl_batches": spdl_batches,
    "strobe": ours,
}


@contextmanager
def _dataloader(job: Job, photos: Photos, **options: Any) -> Iterator[Any]:
    """An iterator of a DataLoader whose workers are forked, and gone at the end."""
    loader: DataLoader[Any] = DataLoader(
        photos,
        batch_size=job.batch_size if job.batched else None,
        sampler=Endless(len(photos)),
        num_workers=job.workers,
        multiprocessing_context="fork",
        **options,
    )
    batches = iter(loader)
    try:
        yield batches
    finally:
        end_workers(batches)


def end_workers(batches: Any) -> None:
    """End the worker processes of torch's iterator of batches; None has none."""
    if batches is not None:
        batches._shutdown_workers()
