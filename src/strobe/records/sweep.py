"""The record of a sweep, ``sweep.json``: its cells, and how each of their runs ended."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from strobe.errors import DataError, disk_errors
from strobe.records.files import write_summary

NAME = "sweep.json"
SCHEMA = 1
OWN = "sweep."  # keys that are not passed to cells
STATUSES = ("completed", "failed", "interrupted")
INTERRUPTED = "it was interrupted"
UNFINISHED = "it had not ended when the sweep did"


@dataclass
class Run:
    """One training of a cell; ``directory`` is relative to the sweep's."""

    repeat: int  # from 1
    directory: str
    status: Literal["completed", "failed", "interrupted"]
    error: str | None
    seconds: float


@dataclass
class SweepCell:
    """One configuration, by its overrides."""

    number: int
    overrides: list[str]
    runs: list[Run] = field(default_factory=list)

    @property
    def key(self) -> frozenset[str]:
        """The same for the same configuration."""
        return frozenset(self.overrides)

    def run(self, repeat: int) -> Run | None:
        """The run of this repeat, if there is one."""
        return next((run for run in self.runs if run.repeat == repeat), None)


@dataclass
class Sweep:
    """What ``sweep.json`` holds."""

    command: str
    overrides: list[str]  # as they were typed
    repeats: int
    seed: int
    began: str
    status: Literal["running", "completed", "interrupted"] = "running"
    seconds: float = 0.0  # of all processes that measured into it
    cells: list[SweepCell] = field(default_factory=list)

    def cell(self, overrides: Sequence[str]) -> SweepCell:
        """The cell with these overrides, in any order; a new one if there is none."""
        known = next((cell for cell in self.cells if cell.key == frozenset(overrides)), None)
        if known is None:
            number = 1 + max((cell.number for cell in self.cells), default=-1)
            known = SweepCell(number, list(overrides))
            self.cells.append(known)
        return known

    def runs(self) -> Iterator[Run]:
        """All runs that were started."""
        for cell in self.cells:
            yield from cell.runs

    def save(self, folder: Path) -> None:
        """Write the record, whole or not at all; raises a DataError if the file system refuses it."""
        remedy = f"make room or check its permissions, and resume with hydra.sweep.dir={folder}"
        with disk_errors(lambda why: f"{folder / NAME} could not be written ({why}); {remedy}"):
            write_summary(folder / NAME, {"schema": SCHEMA, **asdict(self)})


def read_sweep(folder: Path) -> Sweep | None:
    """The record of a sweep, or None if the folder holds no sweep. Raises a DataError if the record is damaged."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        return _parsed(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise DataError(f"hydra.sweep.dir={folder} has a damaged sweep.json ({reason}); give another folder") from error


def _parsed(record: dict[str, Any]) -> Sweep:
    if record["schema"] != SCHEMA:
        raise ValueError(f"schema {record['schema']!r} is not {SCHEMA}")
    cells = [
        SweepCell(int(cell["number"]), [str(text) for text in cell["overrides"]], [_run(run) for run in cell["runs"]])
        for cell in record["cells"]
    ]
    return Sweep(
        command=str(record["command"]),
        overrides=[str(text) for text in record["overrides"]],
        repeats=int(record["repeats"]),
        seed=int(record["seed"]),
        began=str(record["began"]),
        status=record["status"],
        seconds=float(record["seconds"]),
        cells=cells,
    )


def _run(record: dict[str, Any]) -> Run:
    """A run, whose directory must be within the sweep's, because it may be emptied."""
    parts = PurePosixPath(record["directory"]).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise ValueError(f"directory {record['directory']!r} is not below it")
    if record["status"] not in STATUSES:
        raise ValueError(f"status {record['status']!r} is unknown")
    return Run(
        int(record["repeat"]), record["directory"], record["status"], record["error"], float(record["seconds"] or 0)
    )
