"""The page cache of files: brought in, thrown out, and measured, without being root."""

import ctypes
import math
import mmap
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from strobe.errors import DataError

WARM, COLD = "warm", "cold"
PIECE = 1 << 20  # bytes that are held at a time of a file that is read
WINDOWS, WINDOW = 64, 64  # of a file that is longer than all of them together: how many, and pages of each
STILL_THERE = 0.05  # of the pages: more than this may not stay of files that were thrown out


def bring(files: Sequence[str], state: str) -> None:
    """Read the files, or throw them out of the page cache."""
    for path in files:
        if state == COLD:
            evict(path)
        else:
            with Path(path).open("rb", buffering=0) as file:
                while file.read(PIECE):
                    pass


def evict(path: str) -> None:
    """Throw a file's pages out, those just written once they are on the disk (posix_fadvise(2))."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def resident(files: Sequence[str], *, seconds: float = math.inf) -> float | None:
    """The share of the files' pages that the page cache holds, by mincore(2), which brings none in.

    Of long files some windows are asked about, and of many files as many, in random order, as can be in so many
    seconds. None where it is not known: a file is missing, or belongs to other people, of whose files the kernel tells
    everybody else that all is there.
    """
    held = total = 0.0
    ends = time.monotonic() + seconds
    for path in random.Random(0).sample(files, len(files)):
        try:
            status = Path(path).stat()
            if not (os.access(path, os.W_OK) or os.geteuid() in (0, status.st_uid)):
                return None
            states = [page & 1 for start, size in _windows(status.st_size) for page in _pages(path, start, size)]
        except OSError:
            return None
        if states:
            held += status.st_size * sum(states) / len(states)
            total += status.st_size
        if time.monotonic() > ends:
            break
    return held / total if total else None


def require_cold(files: Sequence[str]) -> None:
    """Raise a DataError where the files cannot be thrown out, as on a file system in memory."""
    share = resident(files)
    if share is not None and share > STILL_THERE:
        raise DataError(
            f"{share:.0%} of the pages of {files[0]} and {len(files) - 1} other files stay in memory when they are "
            "thrown out of the page cache; measure only warm, or files on a disk that no other process reads"
        )


def _windows(size: int) -> list[tuple[int, int]]:
    """Where the parts of a file begin that are asked about, and their bytes; the whole file if it is short."""
    length = WINDOW * mmap.PAGESIZE
    if size <= WINDOWS * length:
        return [(0, size)] if size else []
    step = (size - length) // (WINDOWS - 1)
    return [
        (number * step // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY, length) for number in range(WINDOWS)
    ]


def _pages(path: str, offset: int, size: int) -> bytes:
    """A byte for each page of a part of a file, odd if the page is there."""
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY, offset=offset) as view:
        states = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(view)
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), states
        )
        del start  # which would keep the mapping from being closed
        if failed:
            raise OSError(ctypes.get_errno(), "mincore", path)
        return bytes(states)
