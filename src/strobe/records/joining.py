"""Puts together what a training left behind; some ranks, or all, may have died."""

import csv
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from strobe.callbacks.columns import GAPS, OWNED, PHASES, RANKS_FOLDER, lines_of, rows_of
from strobe.records.files import BEGUN
from strobe.records.ranks import SIZES, WAIT, rank_files, summarised
from strobe.records.run import CONFIG, SCHEMA, Record, load_record, read_summary, read_yaml
from strobe.records.step_table import StepTable, read_table
from strobe.records.steps import measure_steps

PATIENCE, IMPATIENCE = 5.0, 1.0  # seconds for the others' last rows: of a training that was completed, or was not
EVERY = 0.02  # seconds between two looks
GONE = re.compile(r"^Dist\w*Error|gloo|NCCL|ProcessGroup|c10d")  # in an error by which a rank learns of another's end
WANTED = {"step", "updates", "profiled", "compiled", "total", WAIT, *PHASES, *GAPS, *SIZES}  # and callbacks' columns
MOST_ROWS, FEWEST_JOINED = 200_000, 500  # of all ranks together; of each rank, however many there are
NOTES = "*-error.json"  # of ranks that failed
TAIL = 1 << 16  # bytes, which hold a row


def join_ranks(run_dir: Path, world_size: int | None, *, patience: float = 0.0) -> dict[str, Any] | None:
    """``ranks`` of a run's record, None for a single process; waits so many seconds for ranks that still write.

    ``last_steps`` are those of the ranks that have rows.
    """
    if not world_size or world_size == 1:
        return None
    patience += time.monotonic()
    while _still_write(run_dir, last := last_steps(run_dir)) and time.monotonic() < patience:
        time.sleep(EVERY)
    ranks = measure_ranks(run_dir, world_size)
    return ranks and ranks | {"last_steps": {str(rank): step for rank, step in last.items()}}


def measure_ranks(run_dir: Path, world_size: int | None) -> dict[str, Any] | None:
    """What ``summary.json`` tells of several ranks; None for one process, or where rank 0 has no rows.

    See docs/runs.md. Of a long run the last steps are joined, ``MOST_ROWS`` of all ranks together. Warm-up steps, and
    those that a profiler disturbed on any rank, are left out. If the rows do not say how long a rank waited, only
    ``ranks``, ``steps`` and ``coverage`` are known.
    """
    tables: dict[int, StepTable] = {}
    if world_size is None or world_size < 2:
        return None
    last = max(FEWEST_JOINED, MOST_ROWS // world_size)

    def is_wanted(column: str) -> bool:
        return column in WANTED or column.startswith((OWNED, "device_", "wait_"))

    for rank, path in rank_files(run_dir).items():
        with suppress(OSError, ValueError, TypeError, KeyError, csv.Error):  # of a damaged file nothing is known
            table = read_table(path, is_wanted, last=last)
            if rank < world_size and len(table) and table.has("step").all():
                tables[rank] = table
    if 0 not in tables:
        return None
    known = summarised(tables, world_size)
    return known | {"lines": _lines(run_dir, *known["slow"][:1])}


def _still_write(run_dir: Path, last: Mapping[int, int | None]) -> bool:
    """Whether ranks still write, with these latest steps: those other than 0 leave their lines once they have ended."""
    others = (rows_of(run_dir / "steps.csv", rank) for rank, step in last.items() if rank and step is not None)
    return len(set(last.values())) > 1 or not all(lines_of(path).is_file() for path in others)


def _lines(run_dir: Path, rank: int = 0) -> list[Any]:
    """In which lines a rank other than 0 was seen; those of rank 0 are in the record itself."""
    with suppress(OSError, ValueError):
        lines = json.loads(lines_of(rows_of(run_dir / "steps.csv", rank)).read_text())
        return lines if isinstance(lines, list) else []
    return []


def last_steps(run_dir: Path) -> dict[int, int | None]:
    """The latest step in each rank's file; None for a file without a complete row."""
    return {rank: _last_step(path) for rank, path in rank_files(run_dir).items()}


def _last_step(path: Path) -> int | None:
    with suppress(OSError, ValueError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL), os.SEEK_SET)
        *rows, _ = file.read().split(b"\n")
        return int(rows[-1].split(b",")[0]) if rows else None
    return None


def says_gone(error: BaseException) -> bool:
    """Whether an error only says that another rank has gone."""
    return GONE.search(f"{type(error).__name__}: {error}") is not None


def note_failure(run_dir: Path, rank: int, error: BaseException) -> None:
    """Leave a note of the error that ended training on a rank that writes no record."""
    path = run_dir / RANKS_FOLDER / f"{rank}-error.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"type": type(error).__name__, "message": str(error), "time": time.time()}) + "\n")


def forget_failures(run_dir: Path) -> None:
    """Remove the notes of an earlier training."""
    for path in (run_dir / RANKS_FOLDER).glob(NOTES):
        path.unlink(missing_ok=True)


def what_failed(run_dir: Path, error: BaseException | None = None) -> dict[str, Any] | None:
    """The ``error`` of a training: this one, or that of the rank that failed first, which the key ``rank`` names.

    An error that only says that another rank has gone is not the cause: unless a note says more, it names the ranks
    whose rows end early.
    """
    gone = error is not None and says_gone(error)
    notes = []
    for path in (run_dir / RANKS_FOLDER).glob(NOTES):
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads(path.read_text())
            rank, message = int(path.name.partition("-")[0]), str(note["message"])
            if not GONE.search(f"{note['type']}: {message}"):
                message += "" if message.startswith(f"Rank {rank} ") else f" (on rank {rank})"
                known = {"type": note["type"], "message": message, "rank": rank}
                notes.append((float(note["time"]), known))
    if notes and (error is None or gone):
        return min(notes, key=lambda each: each[0])[1]
    if error is None:
        return None
    message = str(error)
    if gone and (early := ends_early(last_steps(run_dir))):
        message = f"{message} ({early})"
    return {"type": type(error).__name__, "message": message}


def ends_early(last: Mapping[int, int | None]) -> str | None:
    """Which ranks' rows end before those of the others; None if all end together."""
    known = {rank: -1 if step is None else step for rank, step in last.items()}
    longest = max(known.values(), default=-1)
    early = [
        f"rank {rank} end " + (f"at step {step}" if step >= 0 else "before the first step")
        for rank, step in known.items()
        if step < longest
    ]
    return f"The rows of {' and of '.join(early)}, those of the others at step {longest}." if early else None


def is_whole(run_dir: Path) -> bool:
    """Whether the latest training in a directory has its record."""
    return (run_dir / "summary.json").is_file() and not (run_dir / BEGUN).is_file()


def recover(run_dir: Path) -> Record:
    """The record of a training that left no ``summary.json``: what was known at its start, and what its rows show.

    Raises:
        DataError: There are no rows either.
    """
    if not (run_dir / "steps.csv").is_file():
        return load_record(run_dir)  # which says what is missing
    try:
        begun = read_summary(run_dir / BEGUN)
    except (OSError, ValueError):
        begun = {}
    record = Record(begun, read_yaml(run_dir / CONFIG) or begun.get("settings") or {})
    last = last_steps(run_dir)
    world = record.count("world_size") or len(last)
    missing = [rank for rank in range(world) if rank not in last]
    sentences = [
        "There is no summary.json: the process was killed, or training goes on.",
        f"Its rows reach to step {last[0]}." if last.get(0) is not None else "It left no row.",
        ends_early(last),
        missing and f"There are no rows of rank {', '.join(map(str, missing))}.",
        "Unknown are what ended it, its metrics and its ceilings" + ("." if begun else ", and its settings."),
    ]
    steps = measure_steps(
        run_dir / "steps.csv", device=record.text("accelerator"), samples=record.text("unit") or "images"
    )
    error = what_failed(run_dir) or {"type": "Died", "message": " ".join(one for one in sentences if one)}
    known = {"schema": SCHEMA, "status": "failed", "error": error, "world_size": world, "findings": []}
    return Record(begun | steps | known | {"ranks": join_ranks(run_dir, world)}, record.config)
