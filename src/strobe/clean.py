"""The command ``python -m strobe.clean``."""

import argparse
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from strobe.errors import ConfigError
from strobe.present.format import counted, size
from strobe.process.locks import alone_in
from strobe.records.files import size_of

KINDS = {"sweep.json": "sweep", "tune.json": "search", "results.json": "benchmark", ".hydra": "run"}
LOCK = ".lock"  # which a sweep and a search hold
RUNNING = 86400.0  # seconds without a change, after which what has no end on record is taken to have been killed
UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
EXAMPLES = """
It lists first: --remove removes what the same command without it lists. A folder counts only if it holds the record of
a run, a sweep, a search or a benchmark, and nothing else is touched. What may still be in progress stays.

Examples
  python -m strobe.clean
  python -m strobe.clean --older-than 7d
  python -m strobe.clean outputs/sweeps --older-than 7d --remove
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
    """What lies at any depth below ``root``, or is ``root`` itself, links not followed."""
    if root.is_symlink() or not root.is_dir():
        return
    kind = next((kind for name, kind in KINDS.items() if (root / name).exists()), None)
    if kind is None:
        for folder in sorted(root.iterdir()):
            yield from find(folder)
        return
    files = [path for path in root.rglob("*") if not path.is_dir() and path.name != LOCK]  # which is touched below
    age = time.time() - max((path.lstat().st_mtime for path in files), default=root.lstat().st_mtime)
    yield Kept(root, kind, size_of(root), age, _in_progress(root, kind, age))


def _in_progress(folder: Path, kind: str, age: float) -> bool:
    """Whether somebody measures into it, or may: a run writes its record when it ends, unless it is killed."""
    if (folder / LOCK).exists():
        try:
            with alone_in(folder, "folder"):
                pass
        except ConfigError:
            return True
    return kind == "run" and not (folder / "summary.json").exists() and age < RUNNING


def seconds(text: str) -> float:
    """An age such as ``7d``, in seconds; an ``ArgumentTypeError`` says what else fits."""
    if not (match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([mhdw])", text)):
        raise argparse.ArgumentTypeError(f"{text} is not an age; give one such as 12h, 7d or 4w")
    return float(match[1]) * UNITS[match[2]]


def main(arguments: Sequence[str] | None = None) -> None:
    """List, and remove if asked to; exits with a sentence where that cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m strobe.clean",
        description="What runs, sweeps, searches and benchmarks have left, with size and age; and its removal.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("outputs"), help="where to look (outputs)")
    parser.add_argument("--older-than", type=seconds, metavar="AGE", help="only what has not changed for 12h, 7d, 4w")
    parser.add_argument("--remove", action="store_true", help="remove what is listed; needs --older-than")
    given = parser.parse_args(arguments)
    if given.remove and given.older_than is None:
        sys.exit("--remove needs an age; give --older-than 7d, or --older-than 0d for everything that has ended")
    if not given.folder.is_dir():
        sys.exit(f"{given.folder} is not a folder; give one that holds runs")
    found = [kept for kept in find(given.folder) if kept.age >= (given.older_than or 0.0)]
    removed = 0
    for kept in sorted(found, key=lambda kept: -kept.age):
        told = ", may be in progress: stays" if kept.running else ""
        if given.remove and not kept.running:
            with suppress(OSError):
                shutil.rmtree(kept.folder)
            gone = not kept.folder.exists()
            told, removed = (", removed", removed + kept.bytes) if gone else (", could not be removed", removed)
        print(f"{size(kept.bytes):>8}  {kept.age / UNITS['d']:>6,.1f} days  {kept.kind:<9}  {kept.folder}{told}")
    whole = size(sum(kept.bytes for kept in found))
    print(f"{counted(len(found), 'folder')}, {whole}" + (f"; {size(removed)} removed" if given.remove else ""))


if __name__ == "__main__":
    main()
