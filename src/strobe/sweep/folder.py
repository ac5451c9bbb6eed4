"""The directory of a sweep: one process at a time, and nothing lost that a completed run wrote."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from strobe.errors import ConfigError
from strobe.record import read_summary
from strobe.sweep.record import NAME

LOCK = ".lock"


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a sweep's directory.

    Raises:
        ConfigError: another process measures into it.
    """
    path = folder / LOCK
    while True:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    f"hydra.sweep.dir={folder}: another process measures into it; wait for it, or give another folder"
                ) from error
            if not _is(path, file.fileno()):  # its last holder has just removed it
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is(path: Path, file: int) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_ino == os.fstat(file).st_ino
    return False


def require_unused(folder: Path) -> None:
    """Raise a ConfigError for a directory with runs that no ``sweep.json`` tells of: they would be written over."""
    if any(folder.glob("*/summary.json")) or any(folder.glob("*/.hydra")):
        raise ConfigError(
            f"hydra.sweep.dir={folder} holds runs and no {NAME}, so that nobody knows which cells they are; "
            "give another folder"
        )


def completed(run: Path) -> bool:
    """Whether a run's own record says that it completed."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return read_summary(run / "summary.json").get("status") == "completed"
    return False


def make_empty(run: Path) -> None:
    """Remove what a run that did not complete has left."""
    assert not completed(run)
    if run.is_symlink():
        run.unlink()
    elif run.is_dir():
        shutil.rmtree(run)
    else:
        run.unlink(missing_ok=True)
