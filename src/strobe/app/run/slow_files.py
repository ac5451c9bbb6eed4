"""Which files made batches late: the files of the latest batches are read again, and their times compared."""

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strobe.app.data.base import ImageData
from strobe.app.engines.sampler import ShardedBatches
from strobe.app.loaders.base import LoadedData
from strobe.app.loaders.sources import FileSource
from strobe.measure import contention
from strobe.measure.timing import WARMUP_STEPS
from strobe.records.step_table import read_table

BATCHES = 8  # those waited for longest
OTHERS = 64  # files of other batches, to compare with
FAR = 5.0  # times as long as a usual file, or as many bytes
SHARE = 0.1  # of what late batches were waited for: a file that takes less does not explain it


def slow_files(data: ImageData, summary: Mapping[str, Any], run_dir: Path, *, shuffle: bool, seconds: float) -> Any:
    """``uneven.files`` of a run's record ``summary``, where uneven steps mostly wait for data; None if unknown.

    ``seconds`` are spent on reading files. Of the result, ``read`` is their number, ``usual_seconds`` and
    ``usual_bytes`` are those of a file, and ``slow`` are files that take far longer, the slowest first.
    """
    source, dataset, batches = data.found["train"], data.datasets["train"], summary["batches_per_epoch"]
    if not batches or not isinstance(source, FileSource) or source.objects is not None or hasattr(dataset, "images"):
        return None
    steps = read_table(run_dir / "steps.csv", {"step", "epoch", "data_wait"}.__contains__).rows()
    rows = sorted(steps[WARMUP_STEPS:], key=lambda row: -row.get("data_wait", 0.0))
    order = data.batches("train", data.batch_size, shuffle=shuffle).batch_sampler
    often = Counter(_files(order, rows[:BATCHES], batches))
    sizes = {file: Path(source.path(file)).stat().st_size for file in often}
    late = sorted(often, key=lambda file: (-often[file], -sizes[file]))  # the likeliest first
    others = [file for file in _files(order, rows[len(rows) // 2 :][:BATCHES], batches) if file not in often]
    taken: dict[int, float] = {}
    _read(dataset, others[:1], seconds)  # what the first one loads besides
    taken = _read(dataset, others[:OTHERS], seconds / 4) | _read(dataset, late, seconds)
    middle = statistics.median(taken.values())
    least = max(FAR * middle, SHARE * statistics.median(row.get("data_wait", 0.0) for row in rows[:BATCHES]))
    # A file that is slow only once did not cause it: something else on the machine did.
    again = _read(dataset, [file for file in late if taken.get(file, 0.0) >= least], seconds)
    slow = sorted((file for file in again if again[file] >= least), key=lambda file: -again[file])
    return {
        "read": len(taken.keys() & often.keys()),
        "usual_seconds": middle,
        "usual_bytes": statistics.median(sizes.values()),
        "slow": [{"path": source.path(file), "seconds": again[file], "bytes": sizes[file]} for file in slow],
    }


def _read(dataset: LoadedData, files: Sequence[int], seconds: float) -> dict[int, float]:
    """Seconds to load each, for as many as there is time for; waiting for a free core is not included."""
    taken = {}
    ends = time.monotonic() + seconds
    for file in files:
        if (began := time.monotonic()) < ends:
            waited = contention.delayed() or 0.0
            dataset[file]
            taken[file] = time.monotonic() - began - ((contention.delayed() or 0.0) - waited)
    return taken


def _files(order: ShardedBatches, rows: Sequence[Mapping[str, float]], batches: int) -> Iterator[int]:
    """The images of the batches of these steps."""
    epochs: dict[int, NDArray[np.int64]] = {}
    for row in rows:
        epoch = int(row["epoch"])
        if epoch not in epochs:
            order.sampler.set_epoch(epoch)
            epochs[epoch] = order.sampler.order()
        yield from order.batch(epochs[epoch], int(row["step"]) % batches, epoch)
