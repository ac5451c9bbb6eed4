"""Fetched objects on the local disk, in a folder that several processes and trainings may share.

An object's name there holds its version, so a changed one is fetched anew. When the cache is full, what is in it stays:
an epoch asks for each object once, so to replace one would only lose another.
"""

import fcntl
import hashlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.filesize import decimal

from strobe.errors import disk_errors

log = logging.getLogger(__name__)

PARTIAL = ".partial"
USED = ".used"  # locked by each training that reads a root, and as old as the youngest of them
_threads = threading.Lock()  # a file lock does not keep out threads of its own process


class Cache:
    """At most ``most`` bytes in ``folder``, where each root has a folder of its own."""

    def __init__(self, folder: Path, root: str, most: int) -> None:
        self.folder = folder
        self.own = folder / hashlib.blake2b(root.encode(), digest_size=8).hexdigest()
        self.most = most
        self.full = False  # in this process: nothing more is kept

    def prepare(self, needed: int, current: Callable[[], set[str]]) -> None:
        """Make room for ``needed`` bytes: roots that nobody uses go first, the oldest of them first.

        Then what is not ``current`` of the own root. Raises a :class:`DataError` if nothing can be written there.
        """
        remedy = "give a folder that you can write to, or leave it out"
        with disk_errors(lambda why: f"data.cache={self.folder} cannot be used ({why}); {remedy}"):
            self.own.mkdir(parents=True, exist_ok=True)
            with self._counting() as count:
                roots = sorted((place for place in self.folder.iterdir() if place.is_dir()), key=_last_used)
                free = {place: _unused(place) for place in roots}
                sizes = {place: _files(place, unused=free[place]) for place in roots}
                used = os.open(self.own / USED, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
                weakref.finalize(self, os.close, used)  # until then no other process removes this root's objects
                os.utime(used)
                fcntl.flock(used, fcntl.LOCK_SH)
                own = sizes.pop(self.own)
                total = sum(own.values()) + sum(sum(files.values()) for files in sizes.values())
                new = max(0, min(needed, self.most) - sum(own.values()))  # bytes
                for place, files in sizes.items():
                    if total + new > self.most and free[place]:
                        total -= _remove(files)
                if total + new > self.most:
                    kept = current()
                    total -= _remove({path: size for path, size in own.items() if path.name not in kept})
                for path, size in own.items():  # the limit was lowered
                    if total > self.most:
                        total -= _remove({path: size})
                count(total)

    def read(self, name: str, into: memoryview) -> bool:
        """Fill ``into`` with an object that is here; False if it is not, or not whole."""
        path = self._path(name)
        try:
            with path.open("rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size == len(into) and file.readinto(into) == len(into):
                    return True
        except FileNotFoundError:
            return False
        except OSError as error:
            log.warning("%s cannot be read (%s), and is fetched again", path, error.strerror or error)
        with suppress(OSError):
            path.unlink()
        return False

    def keep(self, name: str, content: memoryview) -> None:
        """Write an object, if there is room. A disk that is full ends only the keeping."""
        if self.full:
            return
        path = self._path(name)
        partial = path.with_name(name + PARTIAL)
        mine = False
        try:
            path.parent.mkdir(exist_ok=True)
            with self._counting() as count:
                total = count()
                if total + len(content) > self.most:
                    self.full = True
                    log.info("data.cache=%s is full (%s): the rest is fetched each time", self.folder, decimal(total))
                    return
                if path.exists():
                    return
                with partial.open("xb") as file:  # which exists while another process writes it
                    mine = True
                    file.truncate(len(content))
                count(total + len(content))
            partial.write_bytes(content)
            partial.replace(path)
        except FileExistsError:
            return
        except OSError as error:
            self.full = True
            log.warning("data.cache=%s keeps nothing more: %s", self.folder, error.strerror or error)
            if mine:
                with suppress(OSError):
                    partial.unlink()

    def _path(self, name: str) -> Path:
        return self.own / name[:2] / name

    @contextmanager
    def _counting(self) -> Iterator[Callable[..., int]]:
        """Alone among all processes: reads or, given a number, writes how many bytes are in the folder."""
        with _threads, (self.folder / ".bytes").open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)

            def count(total: int | None = None) -> int:
                if total is None:
                    file.seek(0)
                    return int(content) if (content := file.read()).isdigit() else 0
                file.truncate(0)
                file.write(str(total).encode())
                file.flush()
                return total

            yield count


def _files(place: Path, *, unused: bool) -> dict[Path, int]:
    """The objects of a root, and their bytes; removes what a killed process left half-written."""
    sizes = {}
    for folder, _, names in os.walk(place):
        for path in (Path(folder) / name for name in names if name != USED):
            with suppress(FileNotFoundError):
                if unused and path.name.endswith(PARTIAL):
                    path.unlink()
                else:
                    sizes[path] = path.stat().st_size
    return sizes


def _last_used(place: Path) -> float:
    with suppress(OSError):
        return (place / USED).stat().st_mtime
    return 0.0


def _unused(place: Path) -> bool:
    """Whether no training reads a root."""
    try:
        with (place / USED).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False


def _remove(files: dict[Path, int]) -> int:
    """Remove files; the bytes that this freed."""
    for path in files:
        path.unlink(missing_ok=True)
    return sum(files.values())
