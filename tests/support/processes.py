"""Commands in processes of their own, as a user starts them, and what is still running."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from support.places import ROOT

MARK = "STROBE_TESTED_BY"  # in the environment of whatever a test starts: the process that runs the test


def begin(*command: str, cwd: Path = ROOT, **variables: str) -> "subprocess.Popen[str]":
    """Start ``python COMMAND``, in a session of its own and with one thread; what it says is read by ``ended``."""
    environment = {key: value for key, value in os.environ.items() if key != "STROBE_DATA"}
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=cwd,
        env={**environment, "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: "subprocess.Popen[str]", code: int = 0) -> str:
    """What a command has said when it ends, with this exit code and no traceback."""
    said, _ = process.communicate(timeout=600)  # on a busy machine
    assert process.returncode == code, said
    assert "Traceback" not in said, said
    return said


def git(folder: Path, *words: str) -> str:
    """What git says in this folder."""
    given = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(given, capture_output=True, text=True, check=True).stdout.strip()


def wait_for(true: Callable[[], bool], seconds: float = 600.0) -> bool:
    """Wait until something is true, which must happen."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return True


def all_succeed(processes: Sequence[BaseProcess]) -> None:
    """Run processes of multiprocessing beside each other; each must end well."""
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
        process.close()


def is_running(session: int) -> bool:
    """Whether a process of this session is alive."""
    return any(_session(process) == session for process in psutil.process_iter() if _alive(process))


def living(pids: set[int]) -> set[int]:
    """Those of these processes that have not ended."""
    return {pid for pid in pids if psutil.pid_exists(pid) and _alive(psutil.Process(pid))}


def left_running(test: str | None = None) -> list[psutil.Process]:
    """What this process, or one test, has started and what has not ended, however far down; its helpers left out."""
    own = psutil.Process()
    below = {process.pid for process in own.children(recursive=True)}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            ours = process.pid in below or environment.get(MARK) == str(own.pid)
            if not ours or process.pid == own.pid or not _alive(process) or _helps(process, own.pid):
                continue
            if test is None or environment.get("PYTEST_CURRENT_TEST") == test:
                found.append(process)
    return found


def end_left_running(test: str | None = None, patience: float = 0.0) -> list[str]:
    """End what is left after ``patience`` seconds; one line for each: its command, and the test that started it."""
    deadline = time.monotonic() + patience
    while (left := left_running(test)) and time.monotonic() < deadline:
        time.sleep(0.05)
    lines = []
    for process in left:
        with contextlib.suppress(psutil.Error):
            started = process.environ().get("PYTEST_CURRENT_TEST", "some test")
            lines.append(f"{' '.join(process.cmdline())[:200]} ({started})")
            process.kill()
    return lines


def _helps(process: psutil.Process, of: int) -> bool:
    """multiprocessing keeps such ones until the end."""
    called = " ".join(process.cmdline())
    return process.ppid() == of and ("multiprocessing.forkserver" in called or "resource_tracker" in called)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return -1
