"""Where the record of a training goes, what its script is called, and what is said of an error of Strobe's own."""

import contextlib
import errno
import os
import re
import shlex
import sys
import time
import traceback
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import TypeGuard

from strobe.process.output import note
from strobe.records.files import make_room
from strobe.records.places import ATTACHED, unversioned

FULL = (errno.ENOSPC, errno.EDQUOT)
OF_DISKS = (*FULL, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
OF_FOLDERS = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)
BEGUN, MEMORY = "STROBE_BEGUN", "strobe-begun"  # a variable: a file in memory, a byte for each record that was begun
home = Path()  # where ``strobe run`` was typed, as a script may change its working directory
_stopped = False
records: list[Path] = []  # the directories of those that this process has begun, and not taken back


def new_directory(wanted: Path | None, name: str | None = None) -> Path:
    """A directory without a record: ``strobe-runs/<date>/<time>-<name>``, or the one that is wanted.

    The name is the script's by default. Where the directory holds a record already, -2, -3 ... is added: nothing is
    overwritten. Raises an OSError.
    """
    if begun := _begun():
        with begun.open("a") as file:
            file.write("1")
    dated = time.strftime("%Y-%m-%d"), f"{time.strftime('%H-%M-%S')}-{_part(name or script())}"
    place = (wanted or unversioned(home / ATTACHED).joinpath(*dated)).absolute()
    named = chain([place], (place.with_name(f"{place.name}-{number}") for number in count(2)))
    records.append(next(one for one in named if _is_ours(one)))
    return records[-1]


def take_back(place: Path, files: Sequence[Path]) -> None:
    """Remove the latest directory with these files of its record, as nothing was trained; what else it holds stays."""
    if place in records:  # in the process that has chosen it
        records.remove(place)
    if begun := _begun():
        os.truncate(begun, begun.stat().st_size - 1)
    make_room(place)
    for path in files:
        path.unlink(missing_ok=True)
    for folder in (files[0].parent, place):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _begun() -> Path | None:
    """What counts records for ``strobe run``; None without it, or where its process has ended."""
    with contextlib.suppress(OSError, KeyError):
        if MEMORY in str((begun := Path(os.environ[BEGUN])).readlink()):
            return begun
    return None


def _is_ours(place: Path) -> bool:
    """Whether the directory has no record; then it is taken, also from scripts that start at the same moment."""
    place.mkdir(parents=True, exist_ok=True)
    if (place / "summary.json").exists():
        return False
    try:
        (place / "steps.csv").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def script() -> str:
    """The name of the script, or of the module, that runs."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec else Path(getattr(main, "__file__", None) or "python").stem


def _part(name: str) -> str:
    """A name as part of a path."""
    return re.sub(r"[^\w.-]+", "-", name)


def command() -> str:
    """The line that started this process."""
    return shlex.join(["python", *sys.orig_argv[1:]])


def has_stopped() -> bool:
    """Whether Strobe measures no more in this process."""
    return _stopped


def stop() -> None:
    """Measure no more in this process."""
    global _stopped  # noqa: PLW0603  # once in a process, however many trainings it holds
    _stopped = True


def what_stopped(error: BaseException) -> str:
    """An error that ended the measuring, in words: one of Strobe's own, or of the disk that the record is on."""
    reason = " ".join(str(error).split())
    if _is_of_disk(error):
        remedy = "free some space, or give another folder" if error.errno in FULL else "give another folder"
        return f"its record could not be written: {reason}; {remedy}"
    return f"an error of Strobe's own ended it: {type(error).__name__}: {reason}"


def _is_of_disk(error: BaseException) -> TypeGuard[OSError]:
    return isinstance(error, OSError) and error.errno in (*OF_DISKS, *OF_FOLDERS)


def tell(error: Exception, place: Path | None, rank: int = 0) -> None:
    """Say once what ended the measuring; the traceback of an error of Strobe's own goes into the directory.

    Ranks other than 0 say nothing.
    """
    where = ""
    with contextlib.suppress(OSError):
        if place is not None and place.is_dir() and not _is_of_disk(error):
            make_room(place)
            path = place / (f"ranks/{rank}-strobe-error.txt" if rank else "strobe-error.txt")
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(traceback.format_exception(error)))
            where = f" Its traceback is in {path}."
    stopped_before = has_stopped()
    stop()
    if not stopped_before and rank == 0:
        note(f"Strobe stopped measuring: {what_stopped(error)}. Your training is not affected.{where}")
