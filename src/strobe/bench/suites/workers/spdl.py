"""SPDL's pipelines from photo files to batches: as published, and in whole batches."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

import torch
from torchvision.datasets import ImageFolder as Photos

from strobe.app.loaders.base import Batch
from strobe.app.loaders.spdl import SpdlLoader
from strobe.bench.suites.workers.jobs import Job, Pipeline, moved, standardiser


@contextmanager
def spdl_source(job: Job) -> Iterator[Pipeline]:
    """The published SPDL pipeline, photo by photo.

    But for two arguments: ``scale_mode=None``, without which photos keep their aspect and get black borders, and
    ``max_failures=0``, without which a photo that cannot be read is left out and nobody knows.
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
    with _running(pipeline) as batches:  # between stages lie two items each
        yield Pipeline(lambda: next(batches)[0], holds=job.workers + 8)


@contextmanager
def spdl_batches(job: Job) -> Iterator[Pipeline]:
    """SPDL with one item a batch, its own function for that, a cheaper filter, and standardised as by us."""
    io, builder = _spdl()
    side = job.data.size
    filters = io.get_video_filter_desc(scale_width=side, scale_height=side, scale_mode=None, scale_algo="bilinear")
    samples = Photos(job.folder).samples

    def load(chosen: tuple[tuple[str, int], ...]) -> Batch:
        paths, labels = zip(*chosen, strict=True)
        buffer = io.load_image_batch(paths, width=side, height=side, filter_desc=filters)
        pixels = io.to_torch(buffer).permute(0, 3, 1, 2)
        return (pixels.pin_memory() if job.on_gpu else pixels), torch.tensor(labels)

    pipeline = (
        builder.add_source(_groups(samples, job.batch_size))
        .pipe(load, concurrency=job.workers)
        .add_sink(job.workers)
        .build(num_threads=job.workers, max_failures=0)
    )
    with _running(pipeline) as batches:
        yield Pipeline(lambda: job.finish(next(batches)[0]), holds=2 * job.workers + 2)


def _groups(samples: list[tuple[str, int]], size: int) -> Iterator[tuple[tuple[str, int], ...]]:
    endless = cycle(samples)
    while True:
        yield tuple(islice(endless, size))


def _spdl() -> tuple[Any, Any]:
    """``spdl.io`` and a new builder.

    Raises:
        DataError: SPDL or FFmpeg's libraries are not installed; says how to install them.
    """
    SpdlLoader(scale="device")
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    return spdl.io, PipelineBuilder()


@contextmanager
def _running(pipeline: Any) -> Generator[Iterator[Any], None, None]:
    with pipeline.auto_stop():
        yield iter(pipeline)
