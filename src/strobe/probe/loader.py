"""The ceilings of loading, without training, and of copies from host to GPU."""

import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.apply_func import move_data_to_device
from lightning.pytorch.utilities.data import extract_batch_size
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from strobe.callbacks.ring_buffer import Span
from strobe.callbacks.spans import SpanFolder, span
from strobe.measure import contention
from strobe.measure.timing import Meter, Rate, clock
from strobe.measure.untouched import let_go
from strobe.probe.ranks import Ranks

WARMUP = 3  # copies
MOST_IMAGES = 4000  # whose spans are all kept


@dataclass(frozen=True)
class Loading:
    """The ceiling, and one batch in this process's memory."""

    rate: Rate
    batch: Any


def measure_loader(
    loader: Iterable[Any], *, device: torch.device, seconds: float, ranks: Ranks | None = None
) -> Loading:
    """Drain a loader, epoch after epoch; an endless one is better, as its workers never pause between epochs.

    The workers that it starts, and what they share, are gone when it returns or raises, unless somebody else holds the
    loader. Time before the first batch is not counted.

    Args:
        loader: its ``num_workers`` and ``prefetch_factor``, if any, say how many batches may be ready at the start.
        device: the loader may copy its batches there.
        seconds: at most, from the first batch on.
        ranks: all measure at the same time, from the last one's first batch on.

    Raises:
        ValueError: it has no batch.
    """
    others = {child.pid for child in multiprocessing.active_children()}
    count = getattr(loader, "num_workers", 0)
    workers: list[int] = []
    batches = _endless(loader)
    try:
        batch = next(batches)
        meter = Meter(
            seconds,
            multiple=count,
            warmup=count * ((getattr(loader, "prefetch_factor", None) or 0) + 1) + 2,
            clock=clock(device),
            cpu=lambda: cpu_seconds(workers),
            agree=ranks.at_once() if ranks else None,
        )
        workers += sorted(child.pid or 0 for child in multiprocessing.active_children() if child.pid not in others)
        kept, most = _own(batch), extract_batch_size(batch)
        while not meter.add(images := extract_batch_size(batch)):
            if images > most:  # the first was the end of an epoch
                kept, most = _own(batch), images
            batch = next(batches)
        return Loading(meter.rate(), kept)
    except BaseException as error:
        let_go(error)
        raise
    finally:
        batches.close()  # ends threads
        del batches, loader  # ends worker processes


def loading_parts(loader: Any, *, seconds: float) -> dict[str, Any] | None:
    """Where the time of making a batch goes, in this process and without workers, for so many seconds.

    Parts are the spans that the loading code marks (`strobe.callbacks.spans`), ``collate``, and the ``rest`` of
    getting the items.

    Args:
        loader: a DataLoader over a map-style data set, or an object with its ``dataset`` and ``batch_sampler``.
        seconds: no batch is started later.

    Returns:
        ``batches``, how many were made; ``seconds`` of a mean one; ``cores`` that it used when it had any;
        ``parts``, in seconds of a batch. None for a loader of another kind, or without a batch.
    """
    dataset: Any = getattr(loader, "dataset", None)
    batches = getattr(loader, "batch_sampler", None)
    if batches is None or not hasattr(dataset, "__getitem__"):
        return None
    together, collate = getattr(dataset, "__getitems__", None), getattr(loader, "collate_fn", None)
    folder = SpanFolder()
    folder.start()
    try:
        folder.switch(True)
        count, began, cpu, idle = 0, time.monotonic_ns(), time.process_time(), contention.delayed() or 0.0
        for indices in batches:
            with span("rest"):
                items = together(indices) if together else [dataset[index] for index in indices]
                with span("collate"):
                    _ = collate(items) if collate else items
            count += 1
            if time.monotonic_ns() - began > seconds * 1e9 or count * len(indices) > MOST_IMAGES:
                break
        ended, computed, idle = time.monotonic_ns(), time.process_time() - cpu, (contention.delayed() or 0.0) - idle
        folder.switch(False)
        tracks = folder.read(began, ended)
    finally:
        folder.close()
    parts: dict[str, float] = defaultdict(float)
    for track in tracks:
        for name, own in own_seconds(track.spans):
            parts["rest" if name == "batch" else name] += own / count
    whole = (ended - began) / 1e9
    cores = computed / max(whole - idle, 1e-9)
    return {"batches": count, "seconds": whole / count, "cores": cores, "parts": dict(parts)} if count else None


def own_seconds(spans: Iterable[Span]) -> list[tuple[str, float]]:
    """The name of each span of a thread, and its seconds without the spans inside it."""
    around: list[tuple[int, int]] = []  # where a span ends, and its place in what was found
    found: list[tuple[str, float]] = []
    for each in sorted(spans, key=lambda each: (each.start, -(each.end or each.start))):
        end = each.end or each.start
        while around and around[-1][0] <= each.start:
            around.pop()
        if around:
            name, seconds = found[around[-1][1]]
            found[around[-1][1]] = name, seconds - (end - each.start) / 1e9
        around.append((end, len(found)))
        found.append((each.name, (end - each.start) / 1e9))
    return found


def measure_transfer(
    batch: Any, device: torch.device, *, pinned: bool, seconds: float, ranks: Ranks | None = None
) -> Rate:
    """Copy a batch to the device repeatedly, from pinned or pageable memory, as Lightning does."""
    host = apply_to_collection(batch, Tensor, Tensor.pin_memory) if pinned else batch
    meter = Meter(seconds, warmup=WARMUP, clock=clock(device), agree=ranks.at_once() if ranks else None)
    images = extract_batch_size(batch)
    while True:
        copies = move_data_to_device(host, device)
        if meter.add(images):
            return meter.rate()
        del copies


def cpu_seconds(workers: Iterable[int]) -> float | None:
    """Core-seconds that this process and the workers have used (proc(5): fields 14 and 15 of stat), if it is known."""
    total = time.process_time()
    for pid in workers:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _endless(loader: Iterable[Any]) -> Generator[Any, None, None]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise ValueError("the loader has no batch")


def _own(batch: Any) -> Any:
    """A copy in ordinary memory, neither shared nor pinned."""
    return apply_to_collection(batch, Tensor, Tensor.clone)
