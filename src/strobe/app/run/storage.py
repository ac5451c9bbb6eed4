"""What a run's storage gives: the bytes of its images, which nobody decodes."""

import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strobe.app.data.base import ImageData
from strobe.app.loaders.packed import PackedData
from strobe.app.loaders.shards import StreamedShards
from strobe.app.loaders.sources import FileSource
from strobe.app.storage.objects import Storage
from strobe.diagnose.fetching import MORE_REQUESTS
from strobe.errors import StrobeError
from strobe.present.terminal import clock

MOST_REQUESTS = 256  # at once
ALONE = 9  # objects fetched one after the other
GROUP = 4  # objects for each request, fetched together
SEED = 0

log = logging.getLogger(__name__)


def measure_storage(
    data: ImageData, workers: int, seconds: float, rows: Sequence[Mapping[str, float]]
) -> dict[str, Any] | None:
    """The record's ``ceilings.storage``; None where the storage fails meanwhile. ``rows`` are of ``steps.csv``.

    Its cache is left out. Each of two rates takes about ``seconds``.
    """
    fetching = Fetching.of(data)
    files = np.random.default_rng(SEED).permutation(data.found["train"].indices.numpy())
    storage = fetching.storage
    at_once = min(MOST_REQUESTS, storage.requests, data.batch_size * max(1, workers))
    more = min(MOST_REQUESTS, MORE_REQUESTS * at_once)
    log.info("Measuring what the storage gives, about %s", clock(2 * seconds))
    try:
        alone = [fetching.timed(files[place : place + 1]) for place in range(min(ALONE, len(files)))]
        return {
            "rate": fetching.rate(files, at_once, seconds),
            "at_once": at_once,
            "more": fetching.rate(files[::-1], more, seconds),
            "alone_seconds": statistics.median(alone[1:] or alone),
            "object_bytes": fetching.image_bytes,
            **_epochs(rows, cached=storage.cache is not None),
        }
    except StrobeError as error:
        log.info("What the storage gives was not measured: %s", error)
        return None


@dataclass(frozen=True)
class Fetching:
    """How the images of a training come from its storage: whole objects, or the parts of shards that it reads."""

    storage: Storage
    image_bytes: float  # of a mean image
    get: Callable[[Storage, Tensor], object]  # files (N,) by number, undecoded and without the cache

    @classmethod
    def of(cls, data: ImageData) -> Self:
        """That of the training images."""
        dataset, source = data.datasets["train"], data.found["train"]
        if isinstance(dataset, PackedData) and isinstance(dataset.images, StreamedShards):
            images, planes = dataset.images, dataset.planes.planes
            size = len(planes) * images.layout.plane_bytes

            def parts(storage: Storage, files: Tensor) -> None:
                pixels = torch.empty((len(files), size), dtype=torch.uint8)
                replace(images, storage=storage).gather(files, planes, pixels)

            return cls(images.storage, float(size), parts)
        assert isinstance(source, FileSource)
        objects = source.objects
        assert objects is not None

        def whole(storage: Storage, files: Tensor) -> None:
            replace(source, objects=replace(objects, storage=storage)).fetch(files, cached=False)

        return cls(objects.storage, float(objects.sizes[source.indices.numpy()].mean()), whole)

    def timed(self, files: NDArray[np.int64], storage: Storage | None = None) -> float:
        """Seconds to fetch these files."""
        began = time.monotonic()
        self.get(storage or self.storage, torch.from_numpy(files.copy()))
        return time.monotonic() - began

    def rate(self, files: NDArray[np.int64], at_once: int, seconds: float) -> float:
        """Images/s with so many requests under way; ``files`` (N,) in turn."""
        storage = copy(self.storage)
        storage.requests, storage._open = at_once, None
        self.timed(files[:at_once], storage)  # connections are made
        done, spent = 0, 0.0
        while spent < seconds:
            part = np.take(files, range(done, done + GROUP * at_once), mode="wrap")
            spent += self.timed(part, storage)
            done += len(part)
        return done / spent


def _epochs(rows: Sequence[Mapping[str, float]], *, cached: bool) -> dict[str, float | None]:
    """Seconds that a mean step of the first epoch, and of later ones, waits for data; unknown without a cache."""
    waits: dict[bool, list[float]] = {True: [], False: []}
    for row in rows[1:]:
        waits[row["epoch"] == rows[0]["epoch"]].append(row.get("data_wait", 0.0))
    first, later = waits[True], waits[False]
    if not cached or not first or not later:
        return {"first_wait": None, "later_wait": None, "first_share": None}
    share = len(first) / (len(first) + len(later))
    return {"first_wait": statistics.mean(first), "later_wait": statistics.mean(later), "first_share": share}
