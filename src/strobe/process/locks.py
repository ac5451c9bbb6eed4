"""A lock between processes, so that ranks which start at once do shared work once."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from strobe.errors import ConfigError, DataError

_log = logging.getLogger(__name__)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` exclusively; wait, without a limit, while another process holds it.

    The lock ends with the process at the latest; the file itself stays. Not re-entrant: a holder
    that asks again waits for itself.

    Raises:
        DataError: the file cannot be created, or its file system has no locks.
    """
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("a"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _log.info("Waiting for another process to release %s", path)
                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise DataError(
                f"Cannot lock {path}: {error.strerror or error}; choose a folder that you can write to."
            ) from error
        # Closing alone would leave the lock with any child that was forked meanwhile.
        stack.callback(fcntl.flock, file, fcntl.LOCK_UN)
        yield


@contextmanager
def alone_in(folder: Path, key: str) -> Iterator[None]:
    """Hold a directory that only one process may measure into.

    Args:
        folder: exists.
        key: of the configuration, that named it.

    Raises:
        ConfigError: another process holds it, or it cannot be written to.
    """
    path = folder / ".lock"
    with _held(path, f"{key}={folder}"):
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()


def _held(path: Path, given: str) -> IO[str]:
    """The lock file, open and locked."""
    while True:
        try:
            file = path.open("a")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BaseException:
                file.close()
                raise
        except BlockingIOError as error:
            raise ConfigError(
                f"{given}: another process measures into it; wait for it, or give another folder"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"{given} cannot be locked ({error.strerror or error}); give a folder that you can write to"
            ) from error
        if _is(path, file.fileno()):
            return file
        file.close()  # its last holder has just removed it


def _is(path: Path, file: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(file).st_ino
    except OSError:
        return False
