"""Standard output and error that end no process: closed ones, broken pipes, full disks, terminals without a bullet."""

import errno
import io
import os
import sys
from typing import Any

GONE = (errno.EPIPE, errno.EIO, errno.EBADF)  # who read it, or the terminal


class _Lasting(io.FileIO):
    """A descriptor on which everything can be written; what nobody can read is dropped."""

    lost: OSError | None = None  # why what somebody wants to read was dropped

    def write(self, data: Any, /) -> int:
        """Write, or drop."""
        try:
            written: int | None = super().write(data)
        except OSError as error:
            written = None
            self.lost = self.lost if error.errno in GONE else error
        return memoryview(data).nbytes if written is None else written  # None: it would have to wait


def lasting_output() -> None:
    """Let output never end this process: what the encoding lacks is replaced, what nobody can read is dropped."""
    for name, number, errors in (("stdout", 1, "replace"), ("stderr", 2, "backslashreplace")):
        if (stream := getattr(sys, name)) is not getattr(sys, f"__{name}__"):
            continue  # it is one already, or somebody's own
        if stream is None:  # closed from the beginning: no file that is opened later may take its number
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            os.set_inheritable(number, True)
        buffer = io.BufferedWriter(_Lasting(number, "w", closefd=False))
        encoding = "utf-8" if stream is None else stream.encoding
        setattr(sys, name, io.TextIOWrapper(buffer, encoding, errors, line_buffering=True))


def lost_output() -> str | None:
    """Why part of standard output was dropped that somebody wants to read; None if none was."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return str(raw.lost.strerror) if isinstance(raw, _Lasting) and raw.lost else None


def note(line: str) -> None:
    """Print a line on the standard error of somebody's script, if anybody reads it."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # gone, closed, or closed from the beginning
        pass
