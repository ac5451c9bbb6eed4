"""What a run's storage gives: the bytes of its images, which nobody decodes."""

import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from strobe.app.data.base import ImageData
from strobe.app.loaders.sources import FileSource
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
    source = data.found["train"]
    assert isinstance(source, FileSource)
    assert source.objects is not None
    files = np.random.default_rng(SEED).permutation(source.indices.numpy())
    storage = source.objects.storage
    at_once = min(MOST_REQUESTS, storage.requests, data.batch_size * max(1, workers))
    more = min(MOST_REQUESTS, MORE_REQUESTS * at_once)
    log.info("Measuring what the storage gives, about %s", clock(2 * seconds))
    try:
        alone = [_timed(source, files[place : place + 1]) for place in range(min(ALONE, len(files)))]
        return {
            "rate": fetch_rate(source, files, at_once, seconds),
            "at_once": at_once,
            "more": fetch_rate(source, files[::-1], more, seconds),
            "alone_seconds": statistics.median(alone[1:] or alone),
            "object_bytes": float(source.objects.sizes[files].mean()),
            **_epochs(rows, cached=storage.cache is not None),
        }
    except StrobeError as error:
        log.info("What the storage gives was not measured: %s", error)
        return None


def _timed(source: FileSource, files: NDArray[np.int64]) -> float:
    """Seconds to fetch these files, without the cache."""
    began = time.monotonic()
    source.fetch(torch.from_numpy(files.copy()), cached=False)
    return time.monotonic() - began


def fetch_rate(source: FileSource, files: NDArray[np.int64], at_once: int, seconds: float) -> float:
    """Images/s, undecoded and without the cache, with so many requests under way; ``files`` (N,) in turn."""
    assert source.objects is not None
    storage = copy(source.objects.storage)
    storage.requests, storage._open = at_once, None
    source = replace(source, objects=replace(source.objects, storage=storage))
    _timed(source, files[:at_once])  # connections are made
    done, spent = 0, 0.0
    while spent < seconds:
        part = np.take(files, range(done, done + GROUP * at_once), mode="wrap")
        spent += _timed(source, part)
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
