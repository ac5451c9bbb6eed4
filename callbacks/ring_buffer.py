"""Files with the newest spans of a thread: the thread writes, another process may read at any time.

Times are `time.monotonic_ns()`, one clock for all processes of a machine. A span is written when it begins and
completed when it ends, so work in progress can be seen too, even after a process was killed.
"""

import fcntl
import mmap
import os
import shutil
import struct
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic_ns
from typing import IO, Any

PREFIX = "spans-"
CAPACITY = 16384  # spans that a ring holds, with the one that is being written
# Native sizes and alignment, so that a number is written in one piece.
_HEADER = struct.Struct("@qqqq64s")  # spans begun, process, thread, worker or -1, the thread's name
_RECORD = struct.Struct("@qqqii16s8s")  # start, end or 0, files, epoch, batch (both -1: none), name, split
_NUMBER = struct.Struct("@q")
_END = 8  # where in a record its end stands
_BYTES = _HEADER.size + CAPACITY * _RECORD.size

Batch = tuple[int, int, bytes]  # epoch, number, split
NO_BATCH: Batch = (-1, -1, b"")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work."""

    name: str
    start: int  # time.monotonic_ns()
    end: int | None  # the same clock; None: not ended when it was read
    files: int
    split: str  # of the batch; empty when it belongs to none
    epoch: int | None
    batch: int | None


@dataclass(frozen=True, slots=True)
class Track:
    """What one thread did."""

    pid: int
    tid: int  # the system's number of the thread
    name: str  # the thread's
    worker: int | None  # number of the DataLoader worker
    spans: list[Span]  # in order of their start
    lost: int  # older spans of this recording that newer ones have overwritten


class Ring:
    """A thread's file, mapped into memory; raises an OSError if it cannot be made, or there is no space for it."""

    def __init__(self, folder: str) -> None:
        thread, process, name = threading.get_native_id(), os.getpid(), threading.current_thread().name.encode()
        loading: Any = sys.modules.get("torch.utils.data")  # imports nothing: without torch there is no such worker
        info = loading.get_worker_info() if hasattr(loading, "get_worker_info") else None
        worker = -1 if info is None else int(info.id)
        path = Path(folder, f"{process}-{thread}-{monotonic_ns()}.ring")
        try:
            # Written out and not only made long: on a full disk a mapping would kill the process later.
            path.write_bytes(_HEADER.pack(0, process, thread, worker, name).ljust(_BYTES, b"\0"))
            self.memory = map_file(path, _BYTES)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        self.begun = 0
        self.batch = NO_BATCH

    def begin(self, name: str, files: int) -> int:
        """Write a span without its end; returns its number."""
        number, (epoch, batch, split) = self.begun, self.batch
        offset = _HEADER.size + number % CAPACITY * _RECORD.size
        _RECORD.pack_into(self.memory, offset, monotonic_ns(), 0, files, epoch, batch, name.encode(), split)
        self.begun = number + 1
        _NUMBER.pack_into(self.memory, 0, number + 1)  # last, so that a reader never takes half a record
        return number

    def end(self, number: int) -> None:
        """Complete a span, if newer ones have not taken its place."""
        now = monotonic_ns()
        if self.begun - number <= CAPACITY:
            _NUMBER.pack_into(self.memory, _HEADER.size + number % CAPACITY * _RECORD.size + _END, now)


def map_file(path: Path, size: int) -> mmap.mmap:
    """A file's first `size` bytes as shared memory; raises an OSError if it cannot be opened."""
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), size)


def claim(folder: Path) -> IO[bytes]:
    """Lock a folder's switch while the file is open here or in a child: as long as that, its owner is alive."""
    file = folder.joinpath("switch").open("rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def new_folder(directory: str | Path | None = None) -> tuple[Path, IO[bytes]]:
    """A temporary folder, and the claim that keeps it; what killed processes have left beside it is removed.

    Args:
        directory: where to make it; None: in the system's temporary directory.

    Raises:
        OSError: it cannot be made.
    """
    draft = Path(mkdtemp(prefix="new-", dir=directory))
    draft.joinpath("switch").write_bytes(b"\0")
    held = claim(draft)
    path = draft.rename(draft.with_name(PREFIX + draft.name))
    sweep(path.parent)
    return path, held


def sweep(directory: Path) -> None:
    """Remove what killed processes have left there."""
    for folder in directory.glob(f"{PREFIX}*"):
        with suppress(OSError), claim(folder):
            shutil.rmtree(folder, ignore_errors=True)


def begun_by_the_living(path: Path) -> int | None:
    """How many spans a ring's file has begun; removes the file and returns None if its thread has ended."""
    pid, tid = (int(number) for number in path.stem.split("-")[:2])
    try:
        if pid == os.getpid():
            if tid not in {thread.native_id for thread in threading.enumerate()}:
                raise ProcessLookupError
        else:
            os.kill(pid, 0)
        return _begun(path)
    except OSError:
        path.unlink(missing_ok=True)
        return None


def read_ring(path: Path, since: int, until: int, first: int) -> Track | None:
    """A ring's spans that overlap a window of `time.monotonic_ns()`; None if its file is not complete.

    The file may change meanwhile. Missing spans from number `first` on count as lost.

    Raises:
        OSError: The file is gone.
    """
    with path.open("rb", buffering=0) as file:
        data = file.read()
    if len(data) < _BYTES:
        return None
    total, pid, tid, worker, name = _HEADER.unpack_from(data)
    # The slots at the front may have been overwritten while the file was read.
    oldest = max(0, _begun(path) + 1 - CAPACITY)
    spans: list[Span] = []
    for number in range(oldest, total):
        record = _RECORD.unpack_from(data, _HEADER.size + number % CAPACITY * _RECORD.size)
        start, end, files, epoch, batch, what, split = record
        if start <= until and (not end or end >= since):
            of = (None, None) if batch < 0 else (epoch, batch)
            spans.append(Span(_text(what), start, end or None, files, _text(split), *of))
    spans.sort(key=lambda span: span.start)
    return Track(pid, tid, _text(name), None if worker < 0 else worker, spans, lost=max(0, oldest - first))


def _begun(path: Path) -> int:
    with path.open("rb") as file:
        return int(_NUMBER.unpack(file.read(_NUMBER.size).ljust(_NUMBER.size, b"\0"))[0])


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode(errors="ignore")  # a long name may be cut within a character
