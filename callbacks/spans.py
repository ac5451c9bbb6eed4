"""Marks pieces of loading work, in any process or thread, for the trace of the training that waits for them.

The training process opens a :class:`SpanFolder` and switches it on while it profiles. Code that loads marks its work
with :func:`span` and :func:`batch_span`. Nothing here imports torch, so workers start quickly. If recording fails,
loading continues.
"""

import atexit
import logging
import mmap
import os
import shutil
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType

from .ring_buffer import Batch, Ring, Track, begun_by_the_living, map_file, new_folder, read_ring

_log = logging.getLogger(__name__)

FOLDER = "CALLBACKS_SPANS"  # the environment variable that tells children of the training process where to write
_MEMORY = Path("/dev/shm")
_SPARE = 1 << 28  # bytes that must be free there: workers pass their batches through it


class _Local(threading.local):
    ring: Ring | None = None


_folder: str | None = None
_switch: mmap.mmap | None = None
_local = _Local()


class Recorded:
    """A context manager that records a span, even if an exception ends it.

    With a `batch`, spans of this thread within it get its numbers.
    """

    __slots__ = ("around", "batch", "files", "name", "number", "ring")

    def __init__(self, name: str, files: int, batch: Batch | None = None) -> None:
        self.name = name
        self.files = files
        self.batch = batch

    def __enter__(self) -> None:
        ring = self.ring = _local.ring or _new_ring()
        if ring is not None:
            if self.batch is not None:
                self.around, ring.batch = ring.batch, self.batch
            self.number = ring.begin(self.name, self.files)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.ring is not None:
            self.ring.end(self.number)
            if self.batch is not None:
                self.ring.batch = self.around


_UNRECORDED = nullcontext()


def span(name: str, files: int = 0) -> AbstractContextManager[None]:
    """A context manager for a piece of loading work on so many files; without recording it costs next to nothing.

    The name, such as `read` or `decode`, is cut to 16 bytes of UTF-8.
    """
    switch = _switch
    if switch is None or not switch[0]:
        return _UNRECORDED
    return Recorded(name, files)


def batch_span(epoch: int, number: int, files: int = 0, split: str = "train") -> AbstractContextManager[None]:
    """A span called `batch` around the making of one batch; spans of this thread within it get its numbers.

    Epochs, and batches in each, count from 0. The split is cut to 8 bytes of UTF-8.
    """
    switch = _switch
    if switch is None or not switch[0]:
        return _UNRECORDED
    return Recorded("batch", files, (epoch, number, split.encode()))


class SpanFolder:
    """The folder in which this process's children and threads leave their spans; closed at first.

    If several are open in one process, one within the other, children and threads write to the newest. Only the process
    that started it can change it: copies in forked children do nothing.

    Args:
        directory: Where to make the folder; None for shared memory, or the system's temporary directory when
            that has little room.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        self._directory = directory
        self._path: Path | None = None

    def start(self) -> None:
        """Make the folder for this process and its later children; logs a warning if that fails."""
        if self._path is not None:
            return
        try:
            path, self._claim = new_folder(self._directory or _roomy())
            self._switch = map_file(path / "switch", 1)
        except OSError as error:
            _log.warning("Loading is not recorded: %s", error)
            return
        self._path, self._owner = path, os.getpid()
        self._first: dict[Path, int] = {}
        atexit.register(self.close)
        _open.append(path)
        _write_to(path)

    def switch(self, on: bool) -> None:
        """Start or stop recording. Starting removes what ended threads and processes have left."""
        if not self._is_mine():
            return
        if on:
            self._first = {path: number for path in self._rings() if (number := begun_by_the_living(path)) is not None}
        self._switch[0] = on

    def read(self, since_ns: int, until_ns: int) -> list[Track]:
        """Each thread's spans that overlap a window of `time.monotonic_ns()`, by worker, process and thread."""
        tracks: list[Track] = []
        for path in self._rings():
            try:
                track = read_ring(path, since_ns, until_ns, self._first.get(path, 0))
            except OSError as error:
                _log.warning("Spans of loading in %s are missing in the trace: %s", path, error)
                continue
            if track is not None and track.spans:
                tracks.append(track)
        return sorted(tracks, key=lambda t: (-1 if t.worker is None else t.worker, t.pid, t.tid, t.spans[0].start))

    def close(self) -> None:
        """Stop recording and remove everything; a second call does nothing."""
        path = self._path
        if path is None or not self._is_mine():
            return
        self._path = None
        self._switch[0] = 0  # workers that live on have it mapped
        atexit.unregister(self.close)
        newest = _open[-1]
        _open.remove(path)
        if path == newest:
            _write_to(_open[-1] if _open else None)
        shutil.rmtree(path, ignore_errors=True)
        self._claim.close()

    def _is_mine(self) -> bool:
        return self._path is not None and self._owner == os.getpid()

    def _rings(self) -> list[Path]:
        return [] if self._path is None else sorted(self._path.glob("*.ring"))


def folder() -> str | None:
    """The folder this process writes to, for :func:`join` in another process; None if it writes to none."""
    return _folder


def join(where: str | None) -> None:
    """Write into another process's folder from now on.

    Does nothing if the folder is gone, or this process has one of its own. Forked and spawned children find the folder
    themselves; children of a fork server do not if that is older than the folder.
    """
    if where not in (None, _folder) and not _open:
        _join(where)


def _join(where: str | None) -> None:
    global _folder, _switch, _local
    try:
        switch = None if where is None else map_file(Path(where, "switch"), 1)
    except OSError:
        return
    _local, _folder, _switch = _Local(), where, switch


def _write_to(path: Path | None) -> None:
    if path is None:
        os.environ.pop(FOLDER, None)
    else:
        os.environ[FOLDER] = str(path)
    _join(None if path is None else str(path))


def _new_ring() -> Ring | None:
    where = _folder
    if where is None:
        return None
    try:
        _local.ring = Ring(where)
    except FileNotFoundError:  # the training process is done: nobody wants the spans
        _join(None)
    except OSError as error:
        _log.warning("Loading is not recorded in process %d: %s", os.getpid(), error)
        _join(None)
    return _local.ring


def _roomy() -> Path | None:
    with suppress(OSError):
        if shutil.disk_usage(_MEMORY).free > _SPARE and os.access(_MEMORY, os.W_OK):
            return _MEMORY
    return None


_open: list[Path] = []
os.register_at_fork(after_in_child=lambda: setattr(_local, "ring", None))  # the parent's is its own
_join(os.environ.get(FOLDER))
