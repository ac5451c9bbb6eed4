"""Reads files into the page cache, evicts them, and measures which are there, all without root."""

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
PIECE = 1 << 20  # bytes of a file read at a time
WINDOWS, WINDOW = 64, 64  # sampled from a longer file: how many, and pages of each
STILL_THERE = 0.05  # of the pages: no more may stay after eviction


def bring(files: Sequence[str], state: str) -> None:
    """Read the files, or evict them from the page cache."""
    for path in files:
        if state == COLD:
            evict(path)
        else:
            with Path(path).open("rb", buffering=0) as file:
                while file.read(PIECE):
                    pass


def evict(path: str) -> None:
    """Evict a file's pages, after writing new ones to the disk (posix_fadvise(2))."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def resident(files: Sequence[str], *, seconds: float = math.inf) -> float | None:
    """The share of the files' pages that are in the page cache, by mincore(2), which reads none in.

    Long files are sampled in windows; of many files, as many are sampled, in random order, as fit into so many
    seconds. None if unknown: a file is missing, or belongs to another user, for whose files the kernel always reports
    that everything is cached.
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
    """Raise a DataError if the files cannot be evicted, as on a file system in memory."""
    share = resident(files)
    if share is not None and share > STILL_THERE:
        raise DataError(
            f"{share:.0%} of the pages of {files[0]} and {len(files) - 1} other files stay in memory after "
            "eviction from the page cache; measure only warm, or use files on a disk that no other process reads"
        )


def _windows(size: int) -> list[tuple[int, int]]:
    """The start and length of each sampled part of a file; the whole file if it is short."""
    length = WINDOW * mmap.PAGESIZE
    if size <= WINDOWS * length:
        return [(0, size)] if size else []
    step = (size - length) // (WINDOWS - 1)
    return [
        (number * step // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY, length) for number in range(WINDOWS)
    ]


def _pages(path: str, offset: int, size: int) -> bytes:
    """One byte for each page of a part of a file; odd if the page is cached."""
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
