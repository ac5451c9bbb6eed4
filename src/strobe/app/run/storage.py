"""What a run's storage gives: the bytes of its images, which nobody decodes."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strobe.app.data.base import ImageData
from strobe.app.engines.threads import ThreadEngine
from strobe.app.loaders.packed import PackedData
from strobe.app.loaders.shards import StreamedShards
from strobe.app.loaders.sources import FileSource
from strobe.app.storage.objects import Storage
from strobe.diagnose.fetching import MORE_REQUESTS
from strobe.measure.timing import Rate
from strobe.probe.sides import Sides

MOST_MEASURED = 256  # requests at once, of a rank
ALONE = 9  # objects fetched one after the other
GROUP = 4  # objects for each request, fetched together
SEED = 0
CPU = torch.device("cpu")
STORAGE = {"storage": 1, "storage_more": MORE_REQUESTS}  # what is measured: times as many requests as the run has


def measure_storage(
    side: str,
    sides: Sides,
    data: ImageData,
    *,
    workers: int,
    seconds: float,
    rows: Sequence[Mapping[str, float]] = (),
) -> dict[str, Any]:
    """Part of the record's ``ceilings.storage``: one of ``STORAGE``.

    All ranks call this at once; each fetches the objects in an order of its own, and the first one single ones before.
    The storage's cache is left out. Each rate takes ``seconds``, at most; ``rows`` are of ``steps.csv``.
    """
    fetching, ranks = Fetching.of(data), sides.ranks
    order = np.random.default_rng(SEED + (ranks.rank if ranks else 0))
    files = order.permutation(data.found["train"].indices.numpy())
    beside = max(1, workers)
    threads, processes = (beside, 1) if isinstance(data.engine, ThreadEngine) else (1, beside)
    at_once = min(MOST_MEASURED, processes * min(fetching.storage.requests, data.batch_size * threads))
    if STORAGE[side] > 1:
        more = min(MOST_MEASURED, STORAGE[side] * at_once)
        return {"more": fetching.rate(files[::-1], more, sides, seconds).median}
    alone = fetching.alone(files, seconds) if ranks is None or ranks.rank == 0 else None
    return {
        "alone_seconds": ranks.first("alone", alone) if ranks else alone,
        "rate": fetching.rate(files, at_once, sides, seconds).median,
        "at_once": at_once,
        "ranks": ranks.size if ranks else 1,
        "object_bytes": fetching.image_bytes,
        **_epochs(rows, cached=fetching.storage.cache is not None),
    }


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
            images, planes = dataset.images, dataset.planes
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

    def alone(self, files: NDArray[np.int64], seconds: float) -> float:
        """Seconds that a single object takes; of ``files`` (N,) the first ones, in turn, for about so long."""
        taken: list[float] = []
        for file in files[:ALONE]:
            began = time.monotonic()
            self.get(self.storage, torch.tensor([file]))
            taken.append(time.monotonic() - began)
            if sum(taken) >= seconds:
                break
        return statistics.median(taken[1:] or taken)

    def rate(self, files: NDArray[np.int64], at_once: int, sides: Sides, seconds: float) -> Rate:
        """Images/s of all ranks with so many requests of each under way; ``files`` (N,) in turn."""
        return sides.loader(self._groups(files, at_once), CPU, seconds).rate

    def _groups(self, files: NDArray[np.int64], at_once: int) -> Iterator[Tensor]:
        """The files (N,) of one group after another, once they are fetched; with no end."""
        storage = copy(self.storage)
        storage.requests, storage._open = at_once, None
        for place in count(step=GROUP * at_once):
            group = torch.from_numpy(np.take(files, range(place, place + GROUP * at_once), mode="wrap"))
            self.get(storage, group)
            yield group


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
