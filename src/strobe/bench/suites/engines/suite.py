"""``suite=engines``: engines beside a DataLoader by hand, training beside the model alone, fresh and reused memory."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from strobe.app.config.suites import ENGINE_TABLES
from strobe.bench.harness.declare import Cache, Cell, Input, Plan, Request, Suite, Table, deferred, row
from strobe.bench.harness.results import faster, measured, speed
from strobe.bench.inputs import find_loaded, require_batch
from strobe.present.format import counted, estimate, figure

BY_HAND = "DataLoader by hand"
ALONE = "the model alone"
LOADERS = {"tiles": ("tifffile", "native"), "photos": ("pil", "native"), "array": ("memory",)}
TRAININGS = {  # by the form of data
    "tiles": (
        "skimage",
        "native",
        "native engine.num_workers=1",
        "native engine=spdl engine.num_workers=1",
        "packed",
        "native engine=resident",
    ),
    "photos": ("pil", "native", "native engine.num_workers=1", "native engine=spdl engine.num_workers=1"),
    "array": ("memory loader.batched=false", "memory", "memory engine=resident"),
}
BUFFERS = {  # a way to make a batch, and what it is held against
    "fresh": None,
    "shared": "fresh",
    "reused": "fresh",
    "normalised, out of place": None,
    "normalised, in place": "normalised, out of place",
}
QUICK, FULL = 0.5, 3.0  # seconds of a training in a trial


def declare(cfg: DictConfig) -> Suite:
    """A table for each loader, one for memory, one for training."""
    form, tables = cfg.data.form, list(cfg.suite.tables or ENGINE_TABLES)
    loaders = list(cfg.suite.loaders or (LOADERS[form][-1:] if cfg.quick else LOADERS[form]))
    workers = list(cfg.suite.workers or ((0, 1) if cfg.quick else (0, 1, 2, 4)))
    sizes = list(cfg.suite.batch_sizes or ((1, 64) if cfg.quick else (1, 32, 64, 1024)))
    cores = cfg.threads or len(os.sched_getaffinity(0))
    warm: Cache | None = None if form == "array" else "warm"
    cells: list[Cell] = []
    shown: list[Table] = []
    if "engines" in tables:
        for loader in loaders:
            for count in workers:
                ways = {
                    engine: deferred("engines.cells:deliver", loader=loader, engine=engine, workers=count)
                    for engine in (BY_HAND, "torch", "spdl", *(["resident"] if count == 0 else []))
                }
                cells += row(loader, str(count), ways, threads=cores, cache=warm, at=float(count))
        titles = {loader: f"Batches of {cfg.data.batch_size}, loader={loader}" for loader in loaders}
        shown += [Table(loader, title, rows="workers") for loader, title in titles.items()]
    if "buffers" in tables:
        for size in sizes:
            for some in (list(BUFFERS)[:3], list(BUFFERS)[3:]):
                ways = {way: deferred("engines.cells:fill", way=way, size=size) for way in some}
                cells += row("buffers", str(size), ways, threads=cores, at=float(size))
        shown.append(Table("buffers", "Memory of batches", unit="us an image", rows="batch size", logarithmic=True))
    if "training" in tables:
        trainings = TRAININGS[form][-2:] if cfg.quick else TRAININGS[form]
        seconds = cfg.turn_seconds or (QUICK if cfg.quick else FULL)
        for threads in dict.fromkeys((cores, 1)):
            options = {"threads": threads, "seconds": seconds}
            ways = {ALONE: deferred("engines.cells:train", loader=trainings[0], alone=True, **options)}
            ways |= {name: deferred("engines.cells:train", loader=name, alone=False, **options) for name in trainings}
            cells += row("training", str(threads), ways, threads=threads)
        shown.append(Table("training", "Training, beside the model alone", rows="threads"))
    return Suite(
        title="Engines",
        about="Engines: shuffled batches without an end, taken as fast as they come, without training; the "
        "DataLoader by hand has persistent workers, and prefetches as many batches. BufferPool: a batch is filled, or "
        "standardised, in memory that is new, shared or used before. Training: the application trains from the files; "
        "the model alone trains on one batch that lies there already, so that the ratio is the share of its own "
        "ceiling that a training reaches. With one thread, a second core is left for loading.",
        cells=cells,
        tables=shown,
        quick=Plan(rounds=1, turn=0.1, budget=40),
        full=Plan(rounds=7, turn=0.5, budget=1500),
        find=_find,
        conclude=conclude,
        varies={
            "loader": "suite.loaders=[NAME,...]",
            "engine": "suite.workers=[N,...], for all engines are measured",
            "profiler": "suite=profiling",
            "trainer.max_steps": "turn_seconds=S",
        },
        packages=["spdl-core"],
    )


def _find(request: Request, scratch: Path) -> Input:
    """The images, enough for a batch; packed too where a training reads packs."""
    form, tables = request.cfg.data.form, request.cfg.suite.tables
    loaders = [*(request.cfg.suite.loaders or LOADERS[form]), *TRAININGS[form]]
    packed = "packed" in loaders and (tables is None or "training" in tables) and not request.cfg.quick
    source = find_loaded(request, scratch, loaders, packed=packed)
    require_batch(request.cfg.data.batch_size, source, "data.batch_size=N")
    return source


def conclude(record: Mapping[str, Any]) -> list[str]:
    """The best engine of each loader, what memory that is used again brings, and what share a training reaches."""
    cells, sentences = measured(record), []
    for loader in dict.fromkeys(cell["table"] for cell in cells if cell["table"] not in {"buffers", "training"}):
        best = max(measured(record, loader), key=speed)
        workers = counted(int(best["row"]), "worker")
        sentence = f"loader={loader} is fastest with {best['column']}, {workers}: {figure(speed(best))} images/s"
        for cell in measured(record, loader):
            if (cell["row"], cell["column"]) == (best["row"], BY_HAND) and cell is not best:
                sentence += f", {times} times the DataLoader by hand" if (times := faster(best, cell)) else ""
        sentences.append(f"{sentence}.")
    for cell in cells:
        if cell["ratio"] and cell["column"] in {"reused", "normalised, in place"}:
            times = f"{estimate(cell['ratio'])} times as fast as {BUFFERS[cell['column']]}"
            sentences.append(f"Batches of {cell['row']}, {cell['column']}: {times}.")
    for cell in cells:
        if cell["ratio"] and cell["table"] == "training":
            threads, reached = counted(int(cell["row"]), "thread"), estimate(cell["ratio"])
            sentence = f"Training with loader={cell['column']}, {threads}: {figure(speed(cell))} images/s"
            sentences.append(f"{sentence}, {reached} of what the model alone reaches.")
    return sentences
