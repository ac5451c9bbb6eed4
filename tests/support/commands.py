"""Commands in a process, as a user starts them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT


def begin(module: str, *arguments: str, cwd: Path = ROOT, **variables: str) -> "subprocess.Popen[str]":
    """``python -m MODULE``, in a session of its own."""
    environment = {key: value for key, value in os.environ.items() if key != "STROBE_DATA"}
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env={**environment, "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def start(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """``python -m strobe.bench``."""
    return begin("strobe.bench", *arguments, **variables)


def is_running(session: int) -> bool:
    """Whether a process of this session, or a zombie of it, is there."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of) == session and state != "Z":
            return True
    return False


def wait_for(true: Callable[[], bool], seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def bench(*arguments: str, code: int = 0, **variables: str) -> str:
    process = start(*arguments, **variables)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == code, said
    assert "Traceback" not in said
    return said
