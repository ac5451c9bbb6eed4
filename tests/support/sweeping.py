"""Sweeps as a user starts them, of runs that take a few seconds."""

import subprocess
from pathlib import Path

import psutil

from support.processes import begin, ended
from support.runs import QUICK

TINY = (*(given for given in QUICK if not given.startswith("data.batch_size=")), "data.tiles_per_class=10")


def start(root: Path, folder: Path, *overrides: str) -> "subprocess.Popen[str]":
    """Start ``python train.py -m`` into ``folder``."""
    flags = [override for override in overrides if override.startswith("-")]
    given = [override for override in overrides if override not in flags]
    return begin("train.py", "-m", *flags, f"data.root={root}", f"hydra.sweep.dir={folder}", *TINY, *given)


def swept(root: Path, folder: Path, *overrides: str, code: int = 0) -> str:
    """What that command says."""
    return ended(start(root, folder, *overrides), code)


def training_into(folder: Path) -> set[int]:
    """The living processes of runs below a folder, by what they were called with."""
    found = set()
    for process in psutil.process_iter(["cmdline", "status"]):
        called = " ".join(process.info["cmdline"] or ())
        if f"hydra.run.dir={folder}" in called and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.add(process.pid)
    return found
