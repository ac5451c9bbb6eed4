"""Locks between processes: to do shared work only once, or to be alone in a folder."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from strobe.errors import ConfigError, disk_errors

_log = logging.getLogger(__name__)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``, which is never removed; wait while another process holds it, without a limit.

    Raises:
        DataError: the file cannot be created.
    """
    lock = FileLock(path)
    with disk_errors(lambda why: f"Cannot lock {path}: {why}; choose a folder that you can write to."):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            _log.info("Waiting for another process to release %s", path)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def alone_in(folder: Path, key: str) -> Iterator[None]:
    """Lock a directory that only one process may write into; ``key`` is the configuration key that names it.

    Raises:
        ConfigError: another process holds it, or it cannot be written to.
    """
    path = folder / ".lock"
    lock = FileLock(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ConfigError(
            f"{key}={folder}: another process is writing into it; wait for it, or set another folder"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{key}={folder} cannot be locked ({error.strerror or error}); set a folder that you can write to"
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # a waiting process notices, and creates another one
        lock.release()
