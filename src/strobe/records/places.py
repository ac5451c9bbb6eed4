"""What a path holds: a run, a sweep's runs, or traces."""

import gzip
import re
import shutil
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from strobe.errors import ConfigError, DataError

OUTPUTS, ATTACHED = Path("outputs"), Path("strobe-runs")  # where train.py and attached trainings write
TUNED = Path("strobe-tune")  # where searches of scripts do
OUTPUT = "output.txt"  # in a folder: what the process printed that wrote into it
CHUNK = 1 << 20  # bytes


def unversioned(folder: Path) -> Path:
    """Make a folder whose files git leaves out, unless it is there; raises an OSError."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)  # another process may, too
        (folder / ".gitignore").write_text("*\n")
    return folder


def locate(path: Path | None) -> Path:
    """The run, sweep, folder or trace file that was given, else the newest run.

    Raises:
        ConfigError: what was given is not there, or holds none of these.
        DataError: there is no run.
    """
    if path is None:
        runs = [*runs_in(OUTPUTS), *runs_in(ATTACHED)]
        if not runs:
            raise DataError(
                f"There is no run below {OUTPUTS}/ or {ATTACHED}/; name a run's directory, or train first "
                "(python train.py, or strobe run SCRIPT.py)"
            )
        ended = {run: run / "summary.json" for run in runs}  # when it ended, or last made a file
        return max(runs, key=lambda run: (ended[run] if ended[run].is_file() else run).stat().st_mtime)
    if not path.exists():
        raise ConfigError(f"{path} does not exist; name the directory of a run or a sweep, or a trace file")
    if path.is_dir() and not (runs_in(path) or traces_in(path) or has_events(path)):
        raise ConfigError(f"{path} holds no run, trace or TensorBoard events; name a run's or a sweep's directory")
    return path


def discard(folder: Path, *names: str, made: bool) -> None:
    """Remove a folder in which nothing was measured, and those by date above it that are empty then.

    Args:
        folder: as a command named or made it.
        names: what was written there.
        made: whether it was made for that; else only these files and folders of it go.
    """
    for path in [folder] if made else [folder / name for name in names]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    with suppress(OSError):  # it is gone already
        folder.rmdir()
    folder = folder.absolute()
    for above in folder.parents:
        if not any(above.is_relative_to(place.absolute()) for place in (OUTPUTS, ATTACHED, TUNED)):
            break
        with suppress(OSError):  # it holds others
            if [path.name for path in above.iterdir()] == [".gitignore"]:
                (above / ".gitignore").unlink()
            above.rmdir()


def runs_in(path: Path) -> list[Path]:
    """The run at ``path``, or the runs below it, in the order of their numbers."""
    if (path / "summary.json").is_file() or (path / "tensorboard").is_dir():
        return [path]
    marks = [*path.rglob("summary.json"), *path.rglob("tensorboard")]
    return _in_order({mark.parent for mark in marks})


def traces_in(path: Path) -> list[Path]:
    """The trace file at ``path``, or those below it: cycles in order, rank by rank and cell by cell."""
    if path.is_file():
        return [path]
    paths = [*path.rglob("*.trace.json"), *path.rglob("*.trace.json.gz")]
    return _in_order(trace for trace in paths if not trace.name.startswith("."))


def newest_of(traces: Iterable[Path]) -> list[Path]:
    """Of traces in the order of their cycles the last one of each rank, and all that name none."""
    newest: dict[str, Path] = {}
    for trace in traces:
        rank = re.search(r"(_rank\d+)(_partial)?\.\d+\.pt\.trace", trace.name)
        newest[f"{trace.parent}{rank[1]}" if rank else str(trace)] = trace
    return list(newest.values())


def has_events(path: Path) -> bool:
    """Whether TensorBoard's own tabs have something to show."""
    return any(path.rglob("events.out.tfevents*"))


def fault_of(trace: Path) -> str | None:
    """Why Perfetto could not open a file as a trace; None if it can.

    Reads the whole file to see whether it is cut or damaged, but does not parse it, which can take a minute. Perfetto
    takes an object that holds events, or a list of events that may lack its end ("Trace Event Format", Google 2016,
    section "JSON Format").
    """
    start, end, events = b"", b"", False
    try:
        with trace.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(trace) if packed else trace.open("rb") as file:
            while chunk := file.read(CHUNK):
                start = start or chunk.lstrip()[:1]
                events = events or b'"ph"' in end + chunk
                end = (end + chunk).rstrip()[-64:]
    except (OSError, EOFError, zlib.error) as error:
        return f"{trace} cannot be read ({error}); it is incomplete or damaged"
    if start not in (b"{", b"[") or not events:
        return f"{trace} holds no trace events; a trace ends in .trace.json or .trace.json.gz"
    if start == b"{" and not end.endswith(b"}"):
        return f"{trace} ends in the middle; it was cut off, or is still being written"
    return None


def _in_order(paths: Iterable[Path]) -> list[Path]:
    """Sorted with numbers as numbers, so that a sweep's cell 10 follows cell 9."""
    return sorted(paths, key=lambda path: [int(p) if p.isdecimal() else p for p in re.split(r"([0-9]+)", str(path))])
