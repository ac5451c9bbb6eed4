"""What the cells of ``suite=engines`` do in their processes: take batches, fill memory, train."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from strobe.app.data.base import ImageData
from strobe.app.loaders.buffer_pool import BufferPool, shared
from strobe.bench.harness.declare import Done, Trial, Work
from strobe.bench.inputs import files_of, loader_keys, prepared
from strobe.bench.steady import apply, model_alone, ready
from strobe.bench.suites.engines.suite import BY_HAND
from strobe.bench.suites.workers.pipelines import Draining, end_workers
from strobe.measure.timing import clock

PREFETCH = 4  # batches for each worker, twice torch's default


@contextmanager
def deliver(trial: Trial, *, loader: str, engine: str, workers: int) -> Iterator[Work]:
    """Shuffled batches by an engine with so many workers, or by a DataLoader as one would write it."""
    keys = [*trial.overrides, *loader_keys(loader, trial.input.facts["packs"])]
    if engine != BY_HAND:
        keys += [f"engine={engine}", f"engine.num_workers={workers}"]
        keys += [f"engine.prefetch_factor={PREFETCH}"] * (engine != "resident")
    data, _ = prepared(keys)
    batches: Any
    if engine == BY_HAND:
        batches = by_hand(data, workers)
        taken = (batch for _ in count() for batch in batches)
    else:
        batches = data.batches("train", data.batch_size, shuffle=True, endless=True)
        taken = iter(batches)
    try:
        with closing(taken):
            take = partial(next, taken)
            drain = Draining(lambda: take()[0], max(1, workers), PREFETCH * workers, clock(torch.device("cpu")))
            yield Work(
                drain, warm_up=lambda: [take() for _ in range(max(1, workers))], files=files_of(data.found["train"])
            )
    finally:
        end_workers(getattr(batches, "_iterator", None))  # of torch, which persist


def by_hand(data: ImageData, workers: int) -> DataLoader[Any]:
    """``DataLoader(data set)`` as its documentation has it, with all that is known to help.

    Persistent workers, prefetching, integers on their way between processes, one thread in each worker (torch sees to
    that); whole batches where the data set makes them.
    """
    dataset = data.datasets["train"]
    options: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": PREFETCH} if workers else {}
    collate = dataset.collate if hasattr(dataset, "__getitems__") else None
    return DataLoader(
        dataset, data.batch_size, shuffle=True, drop_last=True, num_workers=workers, collate_fn=collate, **options
    )


@contextmanager
def fill(trial: Trial, *, way: str, size: int) -> Iterator[Work]:
    """A batch of raw images copied into memory, or standardised into it."""
    data, _ = prepared(trial.overrides)
    dataset = data.datasets["train"]
    pixels: Tensor = dataset.collate([dataset[0]])[0]
    source = pixels.expand(size, *pixels.shape[1:]).clone()
    shape, kind, pool = tuple(source.shape), source.dtype, BufferPool()

    def out_of_place() -> Tensor:
        images = (source.float() / data.full_scale).clamp(0, 1)
        return (images - data.mean.view(-1, 1, 1)) / data.std.view(-1, 1, 1)

    ways: dict[str, Callable[[], Tensor]] = {
        "fresh": lambda: torch.empty(shape, dtype=kind).copy_(source),
        "shared": lambda: shared(shape, kind).copy_(source),
        "reused": lambda: pool.take(shape, kind).copy_(source),
        "normalised, out of place": out_of_place,
        "normalised, in place": lambda: data.normalise(source),
    }
    yield Work(lambda: len(ways[way]()))


@contextmanager
def train(trial: Trial, *, loader: str, threads: int, seconds: float, alone: bool) -> Iterator[Work]:
    """A training from the files as the application does it, or the same model on one batch that lies there already."""
    name, *engine = loader.split()
    keys = loader_keys(name, trial.input.facts["packs"])
    cfg = ready([*trial.overrides, *keys, *engine, f"threads={threads}"])

    def repeat() -> Done:
        size = cfg.data.batch_size
        if alone:
            return model_alone(cfg, seconds, size)
        window = apply(cfg, trial.scratch, seconds)
        return Done(size, window.seconds * size / window.images)

    yield Work(repeat, once=True)
