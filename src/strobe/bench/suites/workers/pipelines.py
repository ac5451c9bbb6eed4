"""From photo files to batches by a number of workers: torch's DataLoader and SPDL, as published and tuned, and ours.

The published ones are those of SPDL's example ``multi_thread_preprocessing``. All resize whole photos to squares, and
standardise by the data set's mean and standard deviation.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, default_collate
from torchvision.datasets import ImageFolder as Photos
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import Compose, Normalize, PILToTensor, Resize
from torchvision.transforms.v2.functional import resize

from strobe.app.build.trainer import lone_trainer
from strobe.app.data.image_folder import USUAL, ImageFolder
from strobe.app.loaders.base import Batch
from strobe.app.loaders.spdl import SpdlLoader
from strobe.bench.harness.declare import Done, Trial, Work
from strobe.bench.inputs import files_of, prepared
from strobe.bench.suites.workers.suite import ONE_BY_ONE, OURS, PUBLISHED, own_overrides
from strobe.measure import environment
from strobe.measure.timing import Clock, clock, repeated

LEAST_SECONDS = 0.05  # of a repetition
PREFETCH = 4  # batches for each worker of a tuned DataLoader, twice torch's default
GPU = "cuda"


@dataclass(frozen=True)
class Job:
    """What a pipeline delivers, without an end: all photos in order, uint8 or, standardised, float32.

    One photo at a time has no batch, (C, H, W) or (1, C, H, W); else it is (N, C, H, W).
    """

    data: ImageFolder  # set up; its loader and engine are ours
    cfg: Any  # the configuration that it was built by
    workers: int
    batched: bool
    normalised: bool = False
    device: torch.device | None = None  # to which it goes; None: it stays where it is

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


Running = tuple[Callable[[], Tensor], int]
"""What gives the next item, and how many may lie ready."""
Run = Callable[[Job], AbstractContextManager[Running]]
"""Begins a pipeline; all its processes and threads have ended when the context has."""


class Draining:
    """Takes items for a while, a multiple of ``items``, and tells the time of one; first those that lie ready."""

    def __init__(self, take: Callable[[], Any], items: int, holds: int, clock: Clock) -> None:
        self._take, self._items, self._ready, self._clock = take, items, holds, clock

    def __call__(self) -> Done:
        """One repetition: the images of an item, and its share of the seconds."""
        block = repeated(
            lambda: 1 if (pixels := self._take()).ndim == 3 else len(pixels),
            LEAST_SECONDS,
            warmup=self._ready,
            multiple=self._items,
            clock=self._clock,
        )
        self._ready = 0
        return Done(block.images // block.steps, block.seconds / block.steps)


def standardiser(job: Job) -> Normalize:
    """``Normalize`` as published: out of place, after division by 255."""
    return Normalize(mean=job.data.mean.tolist(), std=job.data.std.tolist())


def moved(pixels: Tensor, job: Job) -> Tensor:
    """As the published ones do it: the transfer is waited for."""
    return pixels if job.device is None else pixels.to(job.device)


@contextmanager
def torch_source(job: Job) -> Iterator[Running]:
    """The published DataLoader: Pillow, standardised in the workers, float32 between processes, one batch ahead."""
    size = (job.data.size, job.data.size)
    photos = Photos(job.folder, transform=Compose([Resize(size), PILToTensor()]))
    standardise = standardiser(job)

    def collate(items: list[Any]) -> Any:
        pixels, labels = default_collate(items)
        return (standardise(pixels.float() / 255) if job.normalised else pixels), labels

    with _dataloader(job, photos, collate_fn=collate if job.batched else None, prefetch_factor=1) as batches:
        yield lambda: moved(next(batches)[0], job), 2 * job.workers


@contextmanager
def torch_tuned(job: Job) -> Iterator[Running]:
    """A DataLoader with all that is known to help, on a data set written by hand.

    Each photo by the quicker decoder, uint8 between processes, several batches ahead, pinned memory for a GPU, and
    standardised in the training process or on its GPU.
    """
    side = job.data.size or USUAL
    photos = Photos(job.folder, loader=lambda path: decode_quickly(path, side))
    options: dict[str, Any] = {"prefetch_factor": PREFETCH, "persistent_workers": True, "pin_memory": job.on_gpu}
    with _dataloader(job, photos, **options) as batches:
        yield lambda: job.finish(next(batches)[0]), PREFETCH * job.workers


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
def spdl_source(job: Job) -> Iterator[Running]:
    """The published SPDL pipeline, photo by photo, but for two arguments.

    Without ``scale_mode=None`` photos keep their aspect and get black borders; without ``max_failures=0`` a photo that
    cannot be read is left out.
    """
    io, builder = _spdl()
    side = job.data.size
    filters = io.get_video_filter_desc(scale_width=side, scale_height=side, scale_mode=None)
    photos = Photos(job.folder, loader=lambda path: io.decode_packets(io.demux_image(path), filter_desc=filters))
    standardise = standardiser(job)

    def convert(items: list[Any]) -> Any:
        frames, labels = list(zip(*items, strict=True))
        return io.to_torch(io.convert_frames(frames)).permute(0, 3, 1, 2), labels

    builder = builder.add_source(cycle(range(len(photos)))).pipe(photos.__getitem__, concurrency=job.workers)
    builder = builder.aggregate(job.batch_size).pipe(convert)
    if job.normalised:
        builder = builder.pipe(lambda item: (standardise(item[0].float() / 255), item[1]))
    if job.device is not None:
        builder = builder.pipe(lambda item: (moved(item[0], job), item[1]))
    pipeline = builder.add_sink(job.workers).build(num_threads=job.workers, max_failures=0)
    with pipeline.auto_stop():  # between stages lie two items each
        batches = iter(pipeline)
        yield lambda: next(batches)[0], job.workers + 8


@contextmanager
def spdl_batches(job: Job) -> Iterator[Running]:
    """SPDL with one item a batch, its own function for that, a cheaper filter, and standardised as by us."""
    io, builder = _spdl()
    side = job.data.size
    filters = io.get_video_filter_desc(scale_width=side, scale_height=side, scale_mode=None, scale_algo="bilinear")
    samples = cycle(Photos(job.folder).samples)

    def load(chosen: tuple[tuple[str, int], ...]) -> Batch:
        paths, labels = zip(*chosen, strict=True)
        buffer = io.load_image_batch(paths, width=side, height=side, filter_desc=filters)
        pixels = io.to_torch(buffer).permute(0, 3, 1, 2)
        return (pixels.pin_memory() if job.on_gpu else pixels), torch.tensor(labels)

    builder = builder.add_source(iter(lambda: tuple(islice(samples, job.batch_size)), ())).pipe(
        load, concurrency=job.workers
    )
    pipeline = builder.add_sink(job.workers).build(num_threads=job.workers, max_failures=0)
    with pipeline.auto_stop():
        batches = iter(pipeline)
        yield lambda: job.finish(next(batches)[0]), 2 * job.workers + 2


def _spdl() -> tuple[Any, Any]:
    """``spdl.io`` and a new builder; a DataError says how to install what is missing."""
    SpdlLoader(scale="device")
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    return spdl.io, PipelineBuilder()


@contextmanager
def ours(job: Job) -> Iterator[Running]:
    """The DataModule's own batches, by its loader and engine, as a training gets them; standardised as there."""
    if job.on_gpu:
        job.data.trainer = lone_trainer(job.cfg)  # which tells the device, for which engines pin memory
    loader: Any = job.data.batches("train", job.batch_size, endless=True)
    ahead = loader.num_workers * ((loader.prefetch_factor or 0) + 1)
    try:
        with closing(iter(loader)) as batches:
            yield lambda: job.finish(next(batches)[0]), ahead
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
    order, size = cycle(range(len(photos))), job.batch_size if job.batched else None
    options |= {"num_workers": job.workers, "multiprocessing_context": "fork"}
    batches = iter(DataLoader(photos, size, sampler=order, **options))
    try:
        yield batches
    finally:
        end_workers(batches)


def end_workers(batches: Any) -> None:
    """End the worker processes of torch's iterator of batches; None has none."""
    if batches is not None:
        batches._shutdown_workers()


@contextmanager
def deliver(trial: Trial, *, pipeline: str, stage: str, workers: int, limited: bool = False) -> Iterator[Work]:
    """One pipeline's items, as fast as it makes them."""
    name = pipeline.split(maxsplit=1)[0]
    before = torch.get_num_threads()
    if name in PUBLISHED and not limited:
        torch.set_num_threads(environment.usable_cores())
    data, cfg = prepared([*trial.overrides, *own_overrides(pipeline, stage, workers, trial.input.facts)])
    assert isinstance(data, ImageFolder)
    device = torch.device(GPU) if stage == "transfer" else None
    job = Job(data, cfg, workers, stage != "resize", stage in {"normalise", "transfer"}, device)
    try:
        with PIPELINES["strobe" if name in OURS else name](job) as (take, ready):
            items = workers * (ONE_BY_ONE if stage == "resize" else 1)
            yield Work(
                Draining(take, 2 * items, ready, clock(device or torch.device("cpu"))),
                warm_up=lambda: [take() for _ in range(items)],
                files=files_of(data.found["train"]),
            )
    finally:
        torch.set_num_threads(before)
