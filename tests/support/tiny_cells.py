"""Cells that are measured in no time, or go wrong in one of the ways in which cells can."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from strobe.bench.harness.declare import Cell, Done, Input, Suite, Table, Trial, Work
from strobe.bench.harness.results import Results
from strobe.bench.harness.schedule import Campaign, Settings
from strobe.bench.harness.trial import Report, measure
from strobe.errors import DataError, StrobeError
from strobe.process.fork import Failure
from support import suite_records
from support.suite_records import suite_of

FOUND = Input("nothing", facts={"answer": 42})
HEADER: dict[str, Any] = suite_records.HEADER | {
    "suite": "tiny",
    "input": {"told": "nothing", "generated": True},
    "overrides": ["suite=tiny"],
    "settings": {"rounds": 2, "turn": 0.0, "budget": 60.0},
}


@contextmanager
def steady(trial: Trial, *, seconds: float = 0.5, drift: float = 0.0) -> Iterator[Work]:
    """Says that 10 images took so long, and longer with each trial."""
    assert trial.input.facts["answer"] == 42
    took = seconds + drift * trial.number
    yield Work(lambda: Done(10, took, {"pid": os.getpid(), "session": os.getsid(0)}), once=True)


@contextmanager
def quick(_: Trial) -> Iterator[Work]:
    """Says that it took next to no time."""
    yield Work(lambda: Done(10, 1e-5))


@contextmanager
def counting(trial: Trial, *, seconds: float = 0.0) -> Iterator[Work]:
    """Leaves a line for each thing that is done to it."""
    journal = trial.folder / "journal"

    def note(word: str) -> int:
        with journal.open("a") as file:
            file.write(f"{trial.number} {word}\n")
        time.sleep(seconds)
        return 3

    yield Work(lambda: note("repeat"), warm_up=lambda: note("warm up"))
    note("close")


@contextmanager
def reading(_: Trial, *, paths: Sequence[str]) -> Iterator[Work]:
    """Reads files."""

    def read() -> int:
        return sum(len(Path(path).read_bytes()) for path in paths)

    yield Work(read, files=paths)


@contextmanager
def broken(_: Trial, *, how: str) -> Iterator[Work]:
    """Goes wrong."""
    if how == "user":
        raise DataError("data.root=nowhere is not a folder;\n give another")
    print("about to go wrong", flush=True)
    if how == "ours":
        raise ValueError("a mistake of ours")
    if how == "exit":
        os._exit(7)
    if how == "orphan":  # a worker that is left with all that the cell held open
        if not os.fork():
            time.sleep(60)
        os._exit(7)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hangs":
        time.sleep(60)
    yield Work(lambda: 1)


@contextmanager
def leaving(trial: Trial) -> Iterator[Work]:
    """Leaves a process behind."""
    child = subprocess.Popen(["sleep", "600"])
    (trial.folder / "child").write_text(str(child.pid))
    yield Work(lambda: 1)


def suite(*cells: Cell) -> Suite:
    tables = [Table(name, f"table {name}") for name in dict.fromkeys(cell.table for cell in cells)]
    return suite_of(list(cells), tables)


def cell(row: str, make: Any = steady, **options: Any) -> Cell:
    """A cell; options that a cell does not know go to ``make``."""
    own = {key: options.pop(key) for key in ("column", "threads", "cache", "against", "at") if key in options}
    return Cell("t", row, own.pop("column", "c"), partial(make, **options) if options else make, **own)


class Journal:
    """What a campaign told, in order."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.left: list[float] = []

    def tries(self, cell: Cell, number: int, left: float) -> None:
        self.begun.append((cell.row, number))
        self.left.append(left)

    def ended(self, *_: object) -> None:
        pass


def here(cell: Cell, trial: Trial, *, turn: float, timeout: float) -> Report | Failure:
    """A trial in this process."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    try:
        with cell.make(trial) as work:
            return measure(cell, work, turn)
    except (StrobeError, ValueError) as error:
        return Failure(f"{type(error).__name__}: {error}")


def measured(
    folder: Path, *cells: Cell, results: Results | None = None, run: Any = here, **settings: Any
) -> tuple[Results, Journal]:
    """Run a campaign over the cells, in this process unless ``run`` does otherwise."""
    given = {"rounds": 2, "turn": 0.0, "budget": 600.0, "precision": 0.0, "timeout": 30.0, "seed": 0} | settings
    results = results or Results(suite(*cells), HEADER)
    journal = Journal()
    Campaign(results, Settings(**given), FOUND, ["data=sample"], folder, run).measure(journal)
    return results, journal
