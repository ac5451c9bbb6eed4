"""Runs ``train.py`` in a fresh process, which ends no later than this one."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from strobe.overrides import quoted
from strobe.process.fork import end_session, ending, last_said
from strobe.process.signals import interruptible
from strobe.records.places import OUTPUT
from strobe.records.run import read_summary
from strobe.records.sweep import INTERRUPTED

ROOT = Path(__file__).parents[4]
PATIENCE = 30.0  # seconds in which a run that is told to end can write its record
# In the new process, before it becomes the training: end it when this one dies, however that happens (prctl(2)), and
# let it hear Ctrl-C, which a shell's background commands ignore.
START = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Ended:
    """How a run ended; ``error`` is one sentence, None for a completed one."""

    status: Literal["completed", "failed", "interrupted"]
    error: str | None
    seconds: float
    folder: Path


def train(
    overrides: Sequence[str], folder: Path, *, timeout: float | None = None, variables: Mapping[str, str] | None = None
) -> Ended:
    """Run ``train.py`` with these overrides in a process and session of its own; it writes into ``folder``.

    Its output goes to ``output.txt`` there. After ``timeout`` seconds it is ended and counts as failed. In any case no
    process of its session is left. Call this from the main thread. After Ctrl-C or SIGTERM the run gets 30 s to
    write its record, or less on a second request.
    """
    if not (ROOT / "train.py").is_file():
        return Ended("failed", "there is no train.py: this needs a checkout of Strobe's repository", 0.0, folder)
    folder = folder.absolute()
    path, output = folder / "summary.json", folder / OUTPUT
    before = _state(path)
    began = time.monotonic()
    late = False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with interruptible(), output.open("wb") as file, _session(overrides, folder, file, variables) as process:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                late = True
                _ask_to_end(process)
    except OSError as error:
        return Ended("failed", f"{folder}: {error.strerror or error}", time.monotonic() - began, folder)
    seconds = time.monotonic() - began
    if late:
        return Ended("failed", f"it took more than {timeout:g} s", seconds, folder)
    record: dict[str, Any] = {}
    if _state(path) != before:
        with contextlib.suppress(OSError, ValueError):
            record = read_summary(path)
    if process.returncode == 0 and record.get("status") == "completed":
        return Ended("completed", None, seconds, folder)
    if record.get("status") == "interrupted":
        return Ended("interrupted", INTERRUPTED, seconds, folder)
    return Ended("failed", _why(record, output, process.returncode), seconds, folder)


@contextlib.contextmanager
def _session(
    overrides: Sequence[str], folder: Path, output: IO[bytes], variables: Mapping[str, str] | None
) -> Iterator["subprocess.Popen[bytes]"]:
    """The run's process; after the block nothing of its session is left."""
    training = [sys.executable, str(ROOT / "train.py"), *overrides, f"hydra.run.dir={quoted(folder)}"]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", START, str(os.getpid()), *training],
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):  # a second request: no more patience
            _ask_to_end(process)
        raise
    finally:
        end_session(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)


def _ask_to_end(process: "subprocess.Popen[bytes]") -> None:
    """Send Ctrl-C to all processes of the run, as a terminal does, and give it time for its record."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE)


def _state(path: Path) -> tuple[int, int] | None:
    """What changes when a record is written: inode and time."""
    with contextlib.suppress(OSError):
        return (stat := path.stat()).st_ino, stat.st_mtime_ns
    return None


def _why(record: Mapping[str, Any], output: Path, code: int) -> str:
    """Why a run has failed, in one sentence."""
    message = (record.get("error") or {}).get("message")
    if message:
        return " ".join(str(message).split())
    last = last_said(output)
    if code >= 0:
        return last or ending(code)
    return ending(code) + (f"; it last said: {last}" if last else "")
