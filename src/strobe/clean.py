"""The command ``strobe clean``."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import argparse
import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.errors import ConfigError
from strobe.present.format import counted, size
from strobe.process.launch import parser_of, start
from strobe.process.locks import alone_in
from strobe.records.files import BEGUN, statuses
from strobe.records.places import ATTACHED, OUTPUT, OUTPUTS, TUNED

KINDS = {  # by the file that holds the record, and keys that only this program writes together
    "sweep.json": ("sweep", {"schema", "cells", "repeats"}),
    "tune.json": ("search", {"schema", "budget", "trials"}),
    "results.json": ("benchmark", {"schema", "cells", "budget_spent"}),
    "summary.json": ("run", {"schema", "status", "verdict"}),
    BEGUN: ("run", {"schema", "status", "verdict"}),
    "comparison.json": ("comparison", {"schema", "cells", "baseline"}),  # also in a sweep, which then is one
}
CONFIG = Path(".hydra", "config.yaml")
MEASURED = ("looks", "alone", "turns")  # folders of a search, each with one numbered folder a measurement
OWN = re.compile(r"^ceilings_seconds:", re.MULTILINE)  # in the configuration of this program alone
LOCK = ".lock"  # which a run, a sweep, a search and a benchmark hold
LEFT_BESIDE = {  # what Strobe writes for a script or a comparison, whose folder may hold other files too
    "run": {
        *("summary.json", BEGUN, "report.html", "traces.html", "steps.csv", "ranks"),
        *("tensorboard", "tables", "strobe-error.txt"),
    },
    "search": {"tune.json", "search.html", *MEASURED, LOCK},
    "comparison": {"comparison.json", "comparison.csv", "comparison.html"},
}
PLACES = (OUTPUTS, ATTACHED, TUNED)
RUNNING = 86400.0  # seconds without a change, after which what has no end on record is taken to have been killed
UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
HELP = """Lists what runs, sweeps, searches, benchmarks and comparisons left, with size and age, and removes old ones.

Without --remove it only lists. A folder counts only if it holds Strobe's record of a run, a sweep, a search, a
benchmark or a comparison; nothing else is touched. It keeps what may still be in progress.

Examples
  strobe clean
  strobe clean --older-than 7d
  strobe clean outputs/sweeps --older-than 7d --remove
"""


@dataclass(frozen=True)
class Kept:
    """A folder of a run, or of several: ``age`` in seconds since something in it changed last."""

    folder: Path
    kind: str
    bytes: int
    age: float
    running: bool


def find(root: Path) -> Iterator[Kept]:
    """The folders of runs at any depth below ``root``, or ``root`` itself; links are not followed."""
    kind, record = _record(root)
    if kind is None or _holds_more(root, kind, record):
        below: list[Path] = []
        with suppress(OSError):  # a folder that may not be read
            below = sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
        for folder in below:
            yield from find(folder)
        return
    files = {path: status for path, status in statuses(root) if path.name != LOCK}  # which is touched below
    newest = max((status.st_mtime for status in files.values()), default=root.lstat().st_mtime)
    taken, age = sum(status.st_size for status in files.values()), time.time() - newest
    yield Kept(root, kind, taken, age, _in_progress(root, kind, record, age))


def _record(folder: Path) -> tuple[str | None, dict[str, Any]]:
    """The kind of record that a folder holds, None if it holds none, and the record.

    Other programs write files with these names too, so their content decides.
    """
    for name, (kind, keys) in KINDS.items():
        with suppress(OSError, ValueError):
            record = json.loads((folder / name).read_text())
            if isinstance(record, dict) and keys <= record.keys():
                return kind, record
    with suppress(OSError, ValueError):  # a run that has not ended, or was killed
        if OWN.search((folder / CONFIG).read_text()):
            return "run", {}
    return None, {}


def _holds_more(folder: Path, kind: str, record: Mapping[str, Any]) -> bool:
    """Whether removing it would remove what is not Strobe's, such as a project that a run was told to write into."""
    if (folder / ".git").exists() or Path.cwd().is_relative_to(folder.resolve()):
        return True
    if record.get("script") or kind == "comparison":
        own = LEFT_BESIDE.get(kind, set()) | ({OUTPUT} if record.get("ceilings") else set())  # of a probe
        measured = (one for name in MEASURED if kind == "search" for one in folder.glob(f"{name}/*"))
        if not {path.name for path in folder.iterdir()} <= own or not all(one.name.isdecimal() for one in measured):
            return True
    return kind == "run" and any(path.parent.parent != folder for path in folder.rglob(str(CONFIG)))


def _in_progress(folder: Path, kind: str, record: Mapping[str, Any], age: float) -> bool:
    """Whether something is, or may be, writing into it: a run ends by recording its size, unless it is killed."""
    if (folder / LOCK).exists():
        try:
            with alone_in(folder, "folder"):
                pass
        except ConfigError:
            return True
    if kind != "run" or age >= RUNNING:
        return False
    with suppress(OSError):
        began, ended = (folder / CONFIG).stat().st_mtime, (folder / "summary.json").stat().st_mtime
        if began > ended:  # it was started again in its own folder
            return True
    return not record or record.get("bytes", 0) is None


def seconds(text: str) -> float:
    """An age such as ``7d``, in seconds; an ``ArgumentTypeError`` says what is valid."""
    if not (match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([mhdw])", text)):
        raise argparse.ArgumentTypeError(f"{text} is not an age; give one such as 12h, 7d or 4w")
    return float(match[1]) * UNITS[match[2]]


def _age(seconds: float) -> str:
    """In the unit that suits: 12 min, 5.0 h, 31 days."""
    if seconds < UNITS["h"]:
        return f"{seconds / UNITS['m']:.0f} min"
    return f"{seconds / UNITS['h']:.1f} h" if seconds < UNITS["d"] else f"{seconds / UNITS['d']:,.1f} days"


def main(arguments: Sequence[str] | None = None) -> None:
    """List, and remove if asked to; exits with a sentence if that is not possible."""
    parser = parser_of("clean", HELP)
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        help=f"where to look (default: {', '.join(f'{place}/' for place in PLACES[:-1])} and {PLACES[-1]}/, here)",
    )
    parser.add_argument("--older-than", type=seconds, metavar="AGE", help="only what has not changed for 12h, 7d, 4w")
    parser.add_argument("--remove", action="store_true", help="remove what is listed; needs --older-than")
    given = parser.parse_args(arguments)
    if given.remove and given.older_than is None:
        parser.error("--remove needs an age; give --older-than 7d, or --older-than 0d for everything that has ended")
    places = [given.folder] if given.folder else [place for place in PLACES if place.is_dir()]
    if given.folder and not given.folder.is_dir():
        parser.error(f"{given.folder} is not a folder; give one that holds runs")
    found = [kept for place in places for kept in find(place) if kept.age >= (given.older_than or 0.0)]
    removed = 0
    for kept in sorted(found, key=lambda kept: -kept.age):
        told = ", kept: it may be in progress" if kept.running else ""
        if given.remove and not kept.running:
            with suppress(OSError):
                shutil.rmtree(kept.folder)
            gone = not kept.folder.exists()
            told, removed = (", removed", removed + kept.bytes) if gone else (", could not be removed", removed)
        print(f"{size(kept.bytes):>8}  {_age(kept.age):>8}  {kept.kind:<10}  {kept.folder}{told}")
    whole = size(sum(kept.bytes for kept in found))
    print(f"{counted(len(found), 'folder')}, {whole}" + (f"; {size(removed)} removed" if given.remove else ""))


if __name__ == "__main__":
    start(main)
