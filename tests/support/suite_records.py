"""Records of suites that were never run, for the tests of their page and pictures."""

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from strobe.bench.harness.declare import Cell, Input, Plan, Request, Suite, Table, Trial, Work, row
from strobe.bench.harness.results import Results
from strobe.bench.harness.trial import Report
from strobe.process.fork import Failure
from support.pages import HOSTILE

PLAN = Plan(rounds=7, turn=0.5, budget=60)
HEADER = {
    "suite": "loading",
    "title": "How fast images are loaded",
    "about": "Ten batches are loaded by each loader, from files in the page cache, at four batch sizes.",
    "quick": False,
    "input": {"told": "720 tiles of EuroSAT", "generated": False},
    "overrides": ["data=eurosat"],
    "command": "strobe bench suite=loading data=eurosat",
    "environment": {
        "host": "box",
        "cpu": "AMD EPYC 7B13",
        "usable_cores": 2,
        "memory_bytes": 8_000_000_000,
        "gpu": None,
        "versions": {"python": "3.11.7", "torch": "2.15.0", "numpy": "2.3.1"},
        "git_commit": "0123456789abcdef0123456789abcdef01234567+",
        "page_cache": "warm",
    },
    "began": "2026-03-01T09:30:00",
    "settings": {"rounds": 7, "turn": 0.5, "budget": 60.0, "precision": 0.02, "timeout": 900.0, "seed": 0},
    "conclusions": ["The native loader is 6.2 times as fast as skimage, on one thread, at a batch size of 32."],
}
LOADERS = {
    "rasterio": 900,
    "skimage": 1400,
    "skimage + torch": 1250,
    "tifffile": 2600,
    "native": 8700,
    "packed": 31_000,
}


@contextlib.contextmanager
def nothing(trial: Trial) -> Iterator[Work]:
    """A cell that is never measured."""
    yield Work(lambda: 1)


def no_input(request: Request, folder: Path) -> Input:
    return Input("nothing")


def suite_of(cells: list[Cell], tables: list[Table]) -> Suite:
    return Suite("How fast images are loaded", "", cells, tables, PLAN, PLAN, no_input, name="loading")


def report(rate: float, *, images: int = 320, noise: float = 0.02, seed: object = 0) -> Report:
    """A trial that loaded about so many images/s in each of six pieces."""
    drawn = random.Random(str(seed))
    seconds = [images / rate * drawn.lognormvariate(0, noise) for _ in range(6)]
    return Report(seconds, [float(images)] * 6, 1.0, {}, 6)


def record_of(
    suite: Suite, found: Mapping[str, float | str | Sequence[Report]], trials: int = 7, /, **header: Any
) -> dict[str, Any]:
    """The record of cells by name: images/s, the error, or what trials found; cells that are not named wait."""
    results = Results(suite, HEADER | header)
    for cell in suite.cells:
        known = found.get(cell.name, ())
        if isinstance(known, (int, float)):
            known = [report(known, seed=(cell.name, number)) for number in range(trials)]
        for number, outcome in enumerate([Failure(known)] if isinstance(known, str) else known):
            results.add(cell, number, outcome)
    results.seconds = 512.0
    return results.record("completed")


def loading(**header: Any) -> tuple[Suite, dict[str, Any]]:
    """48 cells: six loaders by four batch sizes on one thread and on four."""
    cells, rates = [], {}
    for size in (1, 32, 64, 1024):
        for threads in (1, 4):
            made = row("loaders", str(size), dict.fromkeys(LOADERS, nothing), "skimage", threads=threads, cache="warm")
            cells += made
            for cell in made:
                gain = 1.6 if threads == 4 and cell.column in {"native", "packed"} else 1.0
                rates[cell.name] = LOADERS[cell.column] * gain * (0.8 if size == 1 else 1.0)
    suite = suite_of(cells, [Table("loaders", "Ten batches of tiles", "ms", rows="batch size", logarithmic=True)])
    return suite, record_of(suite, rates, **header)


def workers(**header: Any) -> tuple[Suite, dict[str, Any]]:
    """Lines over the number of workers, of which one point failed and one waits; and a table with bars."""
    rates: dict[str, float | str] = {}
    cells = []
    names = {"torch DataLoader": 210.0, "torch DataLoader, tuned": 340.0, "SPDL": 420.0, "native pool": 610.0}
    for count in (1, 2, 4, 8, 16, 32):
        for name, rate in names.items():
            cell = Cell("throughput", str(count), name, nothing, at=float(count))
            cells.append(cell)
            rates[cell.name] = rate * count ** (0.9 if count <= 8 else 0.75)
    rates["throughput, 4, SPDL, 1 thread"] = "DataError: /data/photos holds <no> photos & no others"
    del rates["throughput, 32, native pool, 1 thread"]
    for stage, cost in {"decode + resize": 1.0, "+ batch": 1.06, "+ normalise": 1.4}.items():
        cell = Cell("stages", stage, "native pool", nothing, 8)
        cells.append(cell)
        rates[cell.name] = 3900 / cost
    tables = [
        Table("throughput", "Throughput over workers", "images/s", "lines", "workers"),
        Table("stages", "What each stage costs", "us an image", rows="stage"),
    ]
    suite = suite_of(cells, tables)
    return suite, record_of(suite, rates, **header)


def hostile() -> tuple[Suite, dict[str, Any]]:
    """A suite and a record in which every text is markup."""
    charts: tuple[Literal["bars", "lines"], ...] = ("bars", "lines")
    cells = [Cell(c + HOSTILE, HOSTILE + row, HOSTILE + way, nothing) for c in charts for row in "ab" for way in "cd"]
    suite = suite_of(cells, [Table(chart + HOSTILE, HOSTILE, "ms", chart, HOSTILE) for chart in charts])
    record = record_of(suite, {cell.name: 10.0 for cell in cells} | {cells[3].name: HOSTILE})
    record |= {"conclusions": [HOSTILE], "began": HOSTILE, "command": HOSTILE, "about": HOSTILE}
    record |= {"title": HOSTILE, "suite": HOSTILE, "status": HOSTILE, "input": {"told": HOSTILE, "generated": True}}
    record["environment"] = dict.fromkeys(("host", "cpu", "gpu", "git_commit", "usable_cores", "page_cache"), HOSTILE)
    record["environment"]["versions"] = {HOSTILE: HOSTILE}
    record |= {"baseline_file": HOSTILE, "baseline": [{"name": HOSTILE, "ratio": None, "verdict": HOSTILE}]}
    return suite, record | {"unlike_baseline": [HOSTILE]}
