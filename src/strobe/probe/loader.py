"""The ceilings of loading, without training, and of copies from host to GPU."""

import multiprocessing
import os
import random
import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from strobe.callbacks.accelerators import PINNING
from strobe.callbacks.batches import shapes_of, size_of
from strobe.callbacks.lines import Lines
from strobe.callbacks.ring_buffer import Span
from strobe.callbacks.spans import SpanFolder, span
from strobe.measure import contention
from strobe.measure.timing import Meter, Rate, clock
from strobe.measure.untouched import let_go
from strobe.probe.ranks import Ranks

WARMUP = 3  # copies
MOST_IMAGES = 4000  # whose spans are all kept
MOST_KINDS = 16  # shapes of which a batch is kept


@dataclass
class Kind:
    """A batch in this process's memory, neither shared nor pinned, and how many of its shapes came."""

    batch: Any
    count: int = 1

    @property
    def images(self) -> int:
        """Samples of the batch; 1 where it does not tell."""
        return samples_of(self.batch)


class Kept:
    """A batch of each shape that a loader gives; of more than ``MOST_KINDS``, of so many at random."""

    def __init__(self) -> None:
        self._kinds: dict[Any, Kind] = {}
        self._seen, self._random = 0, random.Random(0)

    def note(self, batch: Any) -> None:
        """Keep a copy of the batch if there is none of its shape."""
        shapes = shapes_of(batch)
        if (known := self._kinds.get(shapes)) is not None:
            known.count += 1
            return
        self._seen += 1
        if len(self._kinds) == MOST_KINDS:
            if (place := self._random.randrange(self._seen)) >= MOST_KINDS:
                return
            del self._kinds[list(self._kinds)[place]]
        self._kinds[shapes] = Kind(apply_to_collection(batch, Tensor, Tensor.clone))

    def kinds(self) -> list[Kind]:
        """Those that are kept, the one with most samples first."""
        return sorted(self._kinds.values(), key=lambda kind: -kind.images)


@dataclass(frozen=True)
class Loading:
    """The ceiling, and what the batches are like, the one with most samples first."""

    rate: Rate
    kinds: list[Kind]

    @property
    def batch(self) -> Any:
        """A whole batch."""
        return self.kinds[0].batch


def measure_loader(
    loader: Iterable[Any], *, device: torch.device, seconds: float, ranks: Ranks | None = None
) -> Loading:
    """Drain a loader, epoch after epoch.

    The workers that it starts, and what they share, are gone when it returns or raises, unless somebody else holds the
    loader. Not counted is time before the first batch, and in later epochs time until each worker has given one: they
    may have to start again, which training pays once an epoch, and an endless loader never.

    Args:
        loader: its ``num_workers`` and ``prefetch_factor``, if any, say how many batches may be ready at the start.
        seconds: at most, from the first batch on.
        ranks: all measure at the same time, from the last one's first batch on.

    Raises:
        ValueError: it has no batch.
    """
    count, kept = getattr(loader, "num_workers", 0), Kept()
    batches = _endless(loader, count)
    try:
        batch, starting = next(batches)
        meter = Meter(
            seconds,
            multiple=count,
            warmup=count * ((getattr(loader, "prefetch_factor", None) or 0) + 1) + 2,
            clock=clock(device),
            cpu=cpu_seconds,
            agree=ranks.at_once() if ranks else None,
        )
        came = asked = time.perf_counter()
        while True:
            kept.note(batch)
            if starting:
                meter.exclude(came - asked, samples_of(batch))
            elif meter.add(samples_of(batch)):
                return Loading(meter.rate(), kept.kinds())
            asked = time.perf_counter()
            batch, starting = next(batches)
            came = time.perf_counter()
    except BaseException as error:
        let_go(error)
        raise
    finally:
        batches.close()  # ends threads
        del batches, loader  # ends worker processes


@dataclass(frozen=True)
class Reading:
    """The loader of a training as Lightning reads it; each time from its start."""

    combined: Any

    @property
    def num_workers(self) -> int:
        """Of the loader that has most."""
        return max((getattr(one, "num_workers", 0) for one in self.combined.flattened), default=0)

    @property
    def prefetch_factor(self) -> int:
        """Of the loader that has most."""
        return max((getattr(one, "prefetch_factor", None) or 0 for one in self.combined.flattened), default=0)

    def __iter__(self) -> Iterator[Any]:
        return (batch for batch, _, _ in self.combined)


@contextmanager
def staying(loaders: Sequence[Any]) -> Iterator[None]:
    """Let the workers of these loaders stay between epochs, each start of which would take its time and cores."""
    anew = [one for one in loaders if isinstance(one, DataLoader) and one.num_workers and not one.persistent_workers]
    for one in anew:
        vars(one)["persistent_workers"] = True  # which torch lets nobody assign
    try:
        yield
    finally:
        for one in anew:
            vars(one)["persistent_workers"], one._iterator = False, None


def samples_of(batch: Any) -> int:
    """How many samples a batch has; 1 where it does not tell."""
    return size_of(batch) or 1


def loading_parts(loader: Any, *, seconds: float) -> dict[str, Any] | None:
    """Where the time of making a batch goes, in this process and without workers, for so many seconds.

    Parts are the spans that the loading code marks (`strobe.callbacks.spans`), ``collate``, and the ``rest`` of
    getting the items.

    Returns:
        ``batches``, how many were made; ``seconds`` of a mean one; ``cores`` that it used when it had any;
        ``parts``, in seconds of a batch; ``lines`` of the user's own code, as of ``Looks.records``. None for a loader
        without a batch, or without ``dataset`` and ``batch_sampler``.
    """
    dataset: Any = getattr(loader, "dataset", None)
    batches = getattr(loader, "batch_sampler", None)
    if batches is None or not hasattr(dataset, "__getitem__"):  # which torch's IterableDataset has, too
        return None
    stream = iter(dataset) if isinstance(dataset, IterableDataset) else None
    together, collate = getattr(dataset, "__getitems__", None), getattr(loader, "collate_fn", None)
    folder, lines = SpanFolder(), Lines(lambda: "data_wait")
    folder.start()
    try:
        folder.switch(True)
        count, began, cpu, idle = 0, time.monotonic_ns(), time.process_time(), contention.delayed() or 0.0
        drawn = iter(batches)
        while True:
            with span("sampler"):
                indices = next(drawn, None)
            if indices is None:
                break
            with span("rest"):
                if stream is not None:
                    items = list(islice(stream, len(indices)))
                else:
                    items = together(indices) if together else [dataset[index] for index in indices]
                if not items:  # the stream has ended
                    break
                with span("collate"):
                    _ = collate(items) if collate else items
            count += 1
            if time.monotonic_ns() - began > seconds * 1e9 or count * len(indices) > MOST_IMAGES:
                break
        ended, computed, idle = time.monotonic_ns(), time.process_time() - cpu, (contention.delayed() or 0.0) - idle
        folder.switch(False)
        tracks = folder.read(began, ended)
    finally:
        lines.end()
        folder.close()
    parts: dict[str, float] = defaultdict(float)
    for track in tracks:
        for name, own in own_seconds(track.spans):
            parts["rest" if name == "batch" else name] += own / count
    whole = (ended - began) / 1e9
    cores = computed / max(whole - idle, 1e-9)
    if not count:
        return None
    batch = whole / count
    return {"batches": count, "seconds": batch, "cores": cores, "parts": dict(parts), "lines": lines.looks.records()}


def own_seconds(spans: Iterable[Span]) -> list[tuple[str, float]]:
    """The name of each span of a thread, and its seconds without the spans inside it."""
    around: list[tuple[int, int]] = []  # where a span ends, and its place below
    result: list[tuple[str, float]] = []
    for each in sorted(spans, key=lambda each: (each.start, -(each.end or each.start))):
        end = each.end or each.start
        while around and around[-1][0] <= each.start:
            around.pop()
        if around:
            name, seconds = result[around[-1][1]]
            result[around[-1][1]] = name, seconds - (end - each.start) / 1e9
        around.append((end, len(result)))
        result.append((each.name, (end - each.start) / 1e9))
    return result


def measure_transfer(
    batch: Any, device: torch.device, *, pinned: bool, seconds: float, ranks: Ranks | None = None
) -> Rate:
    """Copy a batch to the device repeatedly, from pinned or pageable memory, as Lightning does."""
    from strobe.callbacks.lightnings import move_data_to_device  # a loop without a Trainer need not import Lightning

    pins = pinned and device.type in PINNING
    host = apply_to_collection(batch, Tensor, Tensor.pin_memory) if pins else batch
    meter = Meter(seconds, warmup=WARMUP, clock=clock(device), agree=ranks.at_once() if ranks else None)
    images = samples_of(batch)
    while True:
        copies = move_data_to_device(host, device)
        if meter.add(images):
            return meter.rate()
        del copies


def cpu_seconds() -> float | None:
    """Core-seconds that this process and the children it has, or has had, used; None if they cannot be read.

    Fields 14 and 15 of proc(5)'s ``stat``, of those that have not ended.
    """
    total = time.process_time()
    for child in multiprocessing.active_children():  # which waits for those that have ended
        try:
            fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return total + ended.ru_utime + ended.ru_stime


def _endless(loader: Iterable[Any], workers: int) -> Generator[tuple[Any, bool], None, None]:
    """Batches, epoch after epoch, and whether they are among the first of a later one, which ``workers`` start with.

    Epochs of few batches have nothing but a start.
    """
    length, first = 0, 0
    while True:
        place = 0
        for place, batch in enumerate(loader, start=1):
            yield batch, place <= first
        if not place:
            raise ValueError("the loader has no batch" if not length else "the loader has no batch in a second epoch")
        length, first = place, workers if place > 2 * workers else 0
