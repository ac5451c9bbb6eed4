"""What is worth measuring once the run's ceilings are known, and what each result would gain in training."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from strobe.diagnose.attribution import OPTIMIZER_SHARE
from strobe.diagnose.fetching import remedies
from strobe.diagnose.predict import NOTABLE, Step, step_of, with_loader
from strobe.diagnose.restarts import steady_waiting
from strobe.diagnose.symptoms import (
    EPOCHS,
    INTERVAL,
    SIZE,
    cores_of_a_rank,
    crowded,
    faster_precision,
    fitting_size,
    gpu_capability,
    is_rebuilt,
    start_share,
    times_an_epoch,
    worker_limit,
)
from strobe.records.run import Alternative, Figure, Record

WORKERS = "engine.num_workers"
MOST = 6  # each takes seconds to measure
MOSTLY = 0.5  # of the step: where it waits for so much, computing is not what to look at
BATCHES_AN_EPOCH = 4  # with fewer, a larger batch is no longer training as one knows it


@dataclass(frozen=True)
class Candidate:
    """Settings whose ceiling is worth measuring, of the ``loader`` or of the ``model`` side."""

    side: str
    overrides: tuple[str, ...]


def candidates(record: Record) -> list[Candidate]:
    """Alternatives to measure, most promising first; none for a run without a measured step."""
    step = step_of(record)
    if step is None:
        return []
    loading = [Candidate("loader", overrides) for overrides in remedies(record, step)]
    loading += [Candidate("loader", (override,)) for override in _loading(record, step)]
    computing = [Candidate("model", (override,)) for override in _computing(record, step)]
    waiting = steady_waiting(record, step)
    if waiting >= (NOTABLE if step.workers else MOSTLY):
        computing = []  # behind workers the loader sets the pace, whatever computing takes
    smaller = list(_smaller(record, waiting))
    return [*smaller, *loading[: MOST - min(2, len(computing))], *computing][:MOST]


def estimate_of_loader(record: Record, step: Step, entry: Alternative) -> Figure | None:
    """The speed-up by a loader; None for fewer workers, too many, or one that is no faster beyond noise."""
    if SIZE in entry.changes:  # other images
        return None
    workers, limit = workers_of(entry, step), worker_limit(record, step, lenient=True)
    if workers < step.workers or (workers > step.workers and limit is not None and workers > limit.workers):
        return None
    if workers == step.workers and step.loader is not None and entry.rate.low <= step.loader.high:
        return None
    return with_loader(step, entry.rate, workers=workers, cpu=entry.cpu_seconds)


def leaves_an_epoch(record: Record, size: int) -> bool:
    """Whether an epoch still has a few batches if each has this many images, and those after which it is validated."""
    ranks, images = max(1, record.count("world_size") or 1), record.number("train_images")
    every, now = record.whole("trainer.val_check_interval"), record.whole("data.batch_size") or size
    batches = (record.number("batches_per_epoch") or math.inf) * now / size
    by_epoch = record.whole("trainer.check_val_every_n_epoch") is not None
    whole = images / (size * ranks) if images else batches  # a script tells how many batches, not how many images
    return whole >= BATCHES_AN_EPOCH and not (every and by_epoch and every > batches)


def staying(record: Record, step: Step) -> tuple[str, ...]:
    """What goes with workers where there are none: else each epoch waits for them to start."""
    anew = not step.workers and record.setting("engine.persistent_workers") is False and not is_rebuilt(record)
    return ("engine.persistent_workers=true",) if anew else ()


def workers_of(entry: Alternative, step: Step) -> int:
    """The workers of an alternative, those of the run if it does not change them."""
    value = entry.changes.get(WORKERS, "")
    return int(value) if value.isdigit() else step.workers


def seldomer(record: Record, factor: float) -> tuple[tuple[str, ...], float, str]:
    """Overrides to validate ``factor`` times less often, the share of validations that is left, and the advice."""
    interval, epochs = record.setting(INTERVAL), record.whole(EPOCHS)
    if epochs is None:
        if record.has(EPOCHS) and isinstance(interval, int) and math.isfinite(factor):
            every = interval * int(factor)
            return (f"{INTERVAL}={every}",), 1 / factor, f"Validate every {every} batches."
        return (), 1 / factor, "Validate less often, or on fewer images."
    times = times_an_epoch(interval, record.number("batches_per_epoch"))
    overrides: list[str] = []
    left = 1.0
    if times > 1 and record.has(INTERVAL):
        overrides.append(f"{INTERVAL}=null")
        left = 1 / times
    wanted, most = factor * left, record.whole("trainer.max_epochs") or -1
    every = most if most > 0 and epochs * wanted > most else math.ceil(epochs * min(wanted, 1e6))
    if every > epochs:
        overrides.append(f"{EPOCHS}={every}")
        left *= epochs / every
    if not overrides:
        return (), 1 / factor, "Validate on fewer images, with trainer.limit_val_batches."
    often = "once an epoch" if every <= epochs == 1 else f"every {max(every, epochs)} epochs"
    return tuple(overrides), left, f"Validate {often}."


def _loading(record: Record, step: Step) -> Iterator[str]:
    if steady_waiting(record, step) >= NOTABLE:
        current = record.text("choices", "loader")
        yield from (f"loader={name}" for name in record.items("loaders") if name != current)
        if record.setting("loader.batched") is False:
            yield "loader.batched=true"
        if record.setting("loader.scale", "device") != "device":
            yield "loader.scale=device"
        yield from (f"engine.num_workers={count}" for count in _more_workers(record, step))
    if crowded(record, step):
        own = cores_of_a_rank(record) or 1
        fewer = {0, max(0, math.floor(own) - 1)} if step.cores else {max(1, math.floor(own) - 1)}
        yield from (f"engine.num_workers={count}" for count in sorted(fewer) if count < step.workers)


def _smaller(record: Record, waiting: float) -> Iterator[Candidate]:
    """Images no larger than they are stored: for computing and, if the run waits for data, for loading."""
    if fitting := fitting_size(record):
        sides = ("model", "loader") if waiting >= NOTABLE else ("model",)
        yield from (Candidate(side, (f"{SIZE}={fitting}",)) for side in sides)


def _more_workers(record: Record, step: Step) -> list[int]:
    """The number of workers that would keep up with computing, and the largest possible number."""
    limit = worker_limit(record, step)
    if limit is None or not record.has("engine.num_workers"):
        return []
    one = step.pace * max(1, step.workers)
    enough = math.ceil(1.1 * one / step.compute)  # a tenth more: batches are uneven
    wanted = {min(limit.workers, max(enough, step.workers + 1)), min(limit.workers, 2 * enough)}
    return sorted(count for count in wanted if count > step.workers)


def _computing(record: Record, step: Step) -> Iterator[str]:
    own, threads = cores_of_a_rank(record), record.count("threads")
    if own and threads and record.has("threads") and (threads > own or (step.cores and crowded(record, step))):
        fitting = {max(1, math.floor(own)), max(1, math.floor(own) - step.workers)}
        yield from (f"threads={count}" for count in sorted(fitting, reverse=True) if count < threads)
    elif own and threads and record.has("threads") and step.cores and threads < math.floor(own) - step.workers:
        yield f"threads={math.floor(own) - step.workers}"  # OMP_NUM_THREADS=1, as torchrun sets it, leaves cores idle
    total = record.seconds("total")
    update = record.seconds("optimizer")
    if (
        update >= OPTIMIZER_SHARE * total > 0
        and record.has("model.fused")
        and record.setting("model.fused") is not True
    ):
        yield "model.fused=true"
    if record.setting("model.compile") is True and (start_share(record) or 0.0) >= NOTABLE:
        yield "model.compile=false"
    size = record.whole("data.batch_size")
    larger = [size * factor for factor in (4, 2)] if size else []
    yield from (f"data.batch_size={count}" for count in larger if leaves_an_epoch(record, count))
    if precision := faster_precision(record):
        yield f"trainer.precision={precision}"
    if gpu_capability(record) and record.setting("model.compile") is False:
        yield "model.compile=true"
    if isinstance(last := record.setting("model.channels_last"), bool):
        yield f"model.channels_last={str(not last).lower()}"
