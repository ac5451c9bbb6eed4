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

from strobe.bench.harness.declare import Cell, Done, Input, Plan, Request, Suite, Table, Trial, Work
from strobe.bench.harness.results import Results
from strobe.bench.harness.schedule import Campaign, Settings
from strobe.bench.harness.trial import Report, measure
from strobe.errors import DataError, StrobeError
from strobe.process.fork import Failure

FOUND = Input("nothing", facts={"answer": 42})
HEADER: dict[str, Any] = {
    "suite": "tiny",
    "title": "Tiny",
    "about": "Nothing is done, in several ways.",
    "quick": False,
    "input": {"told": "nothing", "generated": True},
    "overrides": ["suite=tiny"],
    "command": "python -m strobe.bench suite=tiny",
    "began": "2026-01-01T00:00:00+0000",
    "environment": {"host": "here", "cpu": "a cpu", "usable_cores": 2, "versions": {"torch": "2"}, "git_commit": "a"},
    "conclusions": [],
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
    plan = Plan(rounds=2, turn=0.0, budget=60)
    tables = [Table(name, f"table {name}") for name in dict.fromkeys(cell.table for cell in cells)]
    return Suite("tiny", "Tiny", "Nothing.", cells, tables, quick=plan, full=plan, find=find)


def find(asked: Request, scratch: Path) -> Input:
    return FOUND


def cell(row: str, make: Any = steady, **options: Any) -> Cell:
    """A cell; options that a cell does not know go to ``make``."""
    own = {key: options.pop(key) for key in ("column", "threads", "cache", "against", "at") if key in options}
    return Cell("t", row, own.pop("column", "c"), partial(make, **options) if options else make, **own)


class Journal:
    """What a campaign told, in order."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.outcomes: list[Report | Failure] = []
        self.left: list[float] = []

    def tries(self, cell: Cell, number: int, left: float) -> None:
        self.begun.append((cell.row, number))
        self.left.append(left)

    def ended(self, outcome: Report | Failure, cell: Cell) -> None:
        self.outcomes.append(outcome)


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
