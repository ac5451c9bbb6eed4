"""What a page needs from a run's directory besides the record: steps, operators, names of files."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.callbacks.columns import GAPS, PHASES
from strobe.records.step_table import NO_STEPS, StepTable, read_table

TOP = 15
DRAWN = {"step", "epoch", "images", "profiled", "total", "device_total", *GAPS}  # columns of steps.csv
DEVICE_TABLE, HOST_TABLE = "operators_by_device_time", "operators_by_cpu_time"
_COLUMNS = {DEVICE_TABLE: ("self_device_us", "device_us"), HOST_TABLE: ("self_cpu_us", "cpu_us")}
_RANGES = {*PHASES, "fetch", "validation"}  # phases in a trace; the page shows them as such


@dataclass(frozen=True)
class Operator:
    """A row of a table of operators; seconds over all recorded steps."""

    name: str
    own: float
    total: float
    calls: int
    is_range: bool


@dataclass(frozen=True)
class Operators:
    """The slowest operators. ``count``: how many were recorded; ``own``: the time of all; ``over``: which steps."""

    table: str
    rows: tuple[Operator, ...] = ()
    count: int = 0
    own: float = 0.0
    over: str = ""

    @property
    def steps(self) -> int | None:
        """How many steps were recorded; None if that is unknown."""
        match = re.search(r"(\d+) steps?\b", self.over)
        return int(match[1]) if match else None

    @property
    def on_device(self) -> bool:
        """Whether the times are those on the device."""
        return "device" in self.table


@dataclass(frozen=True)
class File:
    """A file of the run: its path relative to it, and its bytes."""

    path: str
    size: int


def steps_of(run: Path) -> StepTable:
    """``steps.csv``, as far as it is drawn; empty if it is missing or damaged."""
    try:
        return read_table(run / "steps.csv", DRAWN.__contains__)
    except (OSError, ValueError, TypeError, KeyError, csv.Error):
        return NO_STEPS


def operators_of(
    run: Path, *, most: int | None = TOP, tables: Sequence[str] = (DEVICE_TABLE, HOST_TABLE)
) -> Operators | None:
    """The slowest operators by their own time, from the first table with rows; None if it is missing or damaged."""
    for table in tables:
        own, total = _COLUMNS[table]
        try:
            operators = _operators(run / "tables" / f"{table}.csv", own, total, most)
        except (OSError, ValueError, TypeError, KeyError, csv.Error):
            continue
        if operators.rows:
            return operators
    return None


def files_of(run: Path) -> list[File]:
    """The run's files, sorted by name, without hidden ones and the report."""
    files = []
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run)
        if name.name.startswith(".") or name.name == "report.html" or not path.is_file():
            continue
        files.append(File(str(name), path.stat().st_size))
    return files


def _operators(path: Path, own: str, total: str, most: int | None) -> Operators:
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        lines = list(csv.DictReader(file))
    on_device = own.startswith("self_device")
    # Kernels have rows of their own; a range on the device holds kernels that are counted already.
    counted = [row for row in lines if not on_device or (row["device"] != "cpu" and row["annotation"] == "0")]
    rows = [
        Operator(
            row["name"], float(row[own]) / 1e6, float(row[total]) / 1e6, int(row["calls"]), row["annotation"] == "1"
        )
        for row in lines
        if row["device"] == "cpu" and not (row["annotation"] == "1" and row["name"] in _RANGES)
    ]
    rows.sort(key=lambda row: -row.own)
    whole = sum(float(row[own]) for row in counted) / 1e6
    return Operators(path.stem, tuple(rows[:most]), len(rows), whole, _headline(path.with_suffix(".txt")))


def _headline(path: Path) -> str:
    """``2 cycles and 6 steps``, as the same table says in its first line for people."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            match = re.search(r"over (.+?):", file.readline())
    except OSError:
        return ""
    return match[1] if match else ""
