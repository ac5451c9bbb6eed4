"""Sweeps as a user starts them, of runs that take a few seconds."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from conftest import QUICK, ROOT

TINY = (
    *(given for given in QUICK if not given.startswith("data.batch_size=")),
    "trainer.enable_checkpointing=false",
    "data.tiles_per_class=10",
    "test=false",
)


def start(root: Path, folder: Path, *overrides: str) -> "subprocess.Popen[str]":
    """``python train.py -m`` into ``folder``, with a session of its own."""
    flags = [override for override in overrides if override.startswith("-")]
    given = [override for override in overrides if override not in flags]
    where = [f"data.root={root}", f"hydra.sweep.dir={folder}"]
    return subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), "-m", *flags, *where, *TINY, *given],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def swept(root: Path, folder: Path, *overrides: str, code: int = 0) -> str:
    """What that command says."""
    said, _ = (process := start(root, folder, *overrides)).communicate(timeout=300)
    assert process.returncode == code, said
    assert "Traceback" not in said
    return said


def wait_for(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def training_into(folder: Path) -> set[int]:
    """The living processes of runs below a folder, by what they were called with."""
    found = set()
    for process in psutil.process_iter(["cmdline", "status"]):
        called = " ".join(process.info["cmdline"] or ())
        if f"hydra.run.dir={folder}" in called and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.add(process.pid)
    return found


def living(pids: set[int]) -> set[int]:
    """Those of these processes that have not ended."""
    return {pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE}
