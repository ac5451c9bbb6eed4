"""Files that appear whole or not at all."""

import csv
import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

BEGUN = "begun.json"  # a run's record as far as it is known when training begins; gone when the record is written
_ROOM, _ROOM_BYTES = ".room", 2 << 20  # kept for that record, on a disk that fills while training goes on
_PARTIAL = ".{}.{}.partial"


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path that becomes ``path`` at the end of the block, or is removed if the block raises.

    It lies beside ``path``, and its bytes are on the disk before it takes that name: whatever ends this process, or the
    machine, the file that was there stays until the new one stands. What killed processes left there is removed.
    """
    remove_left(path.parent)
    partial = path.with_name(_PARTIAL.format(path.name, os.getpid()))
    try:
        with _held(partial) as file:
            yield partial
            os.fsync(file.fileno())
            partial.replace(path)  # while it is locked, or another process takes it for one that was left
        _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def remove_left(folder: Path) -> None:
    """Remove what killed processes left half written in a folder, if there is one."""
    for left in folder.glob(_PARTIAL.format("*", "[0-9]*")):
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # or it is being written
            if os.path.samestat(os.fstat(file.fileno()), left.stat()):  # or another has taken its name since
                left.unlink()


def _held(path: Path) -> BinaryIO:
    """A new file, locked until it is closed or this process ends."""
    while True:
        file = path.open("wb")
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:  # or another process took it for one that was left
            return file
        file.close()


def _sync(folder: Path) -> None:
    """Let the names in a folder reach the disk."""
    with suppress(OSError):  # a file system that cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def statuses(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Each file below a folder, with its status; links are not followed, files that vanish are left out."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with suppress(OSError):
                yield path, path.lstat()


def size_of(*paths: Path) -> int:
    """Bytes of files, and of all files in folders; targets of links and missing files count nothing."""
    files = sum(path.lstat().st_size for path in paths if path.is_file())
    return files + sum(status.st_size for path in paths for _, status in statuses(path))


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write a record as JSON, whole or not at all; infinities and NaN become null."""
    with whole(path) as partial:
        partial.write_text(json.dumps(_finite(summary), indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table, whole or not at all; the first row's keys are the columns of all."""
    with whole(path) as partial, partial.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def interval_columns(name: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    """``NAME_median``, ``NAME_low`` and ``NAME_high`` of such a table; empty cells where there is no value."""
    return {f"{name}_{end}": (value or {}).get(end) for end in ("median", "low", "high")}


def keep_room(run_dir: Path) -> None:
    """Keep room for a record. Raises an OSError; what there is of room is left to others then."""
    try:
        (run_dir / _ROOM).write_bytes(os.urandom(_ROOM_BYTES))  # which no file system makes smaller
    except OSError:
        make_room(run_dir)
        raise


def make_room(run_dir: Path) -> None:
    """Give back the room that was kept, if there is any: the record is about to be written. Raises an OSError."""
    (run_dir / _ROOM).unlink(missing_ok=True)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
