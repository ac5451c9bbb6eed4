"""Scripts that are probed in processes forked from one that has imported torch and Lightning."""

import json
import os
import runpy
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from strobe.probe.asked import ASKED, SIDES, Asked
from strobe.probe.script import why_not
from strobe.process.fork import Failure, FreshProcess, print_into

SECONDS, PATIENCE = 0.4, 120.0


def probed(
    script: Path, folder: Path, *arguments: str, sides: tuple[str, ...] = SIDES, seconds: float = SECONDS
) -> tuple[str | None, dict[str, Any]]:
    """Why nothing was measured, None where something was; and the record, {} where there is none."""
    folder.mkdir(parents=True)
    scratch = folder / "scratch"
    scratch.mkdir()
    asked = Asked((str(script), *arguments), str(folder), str(scratch), seconds, sides)
    words = str(scratch), asdict(asked), {}, str(folder / "output.txt")
    with FreshProcess(become, *words, preload=["torch", "lightning.pytorch"]) as process:
        while isinstance(said := process.receive(PATIENCE), tuple):
            pass
    path = folder / "summary.json"
    record = json.loads(path.read_text()) if path.is_file() else {}
    return (why_not(said, folder) if isinstance(said, Failure) else said["reason"]), record


def become(pipe: Connection, folder: str, asked: dict[str, Any], variables: dict[str, str], output: str) -> None:
    """In the place of ``strobe.probe.script._become``: the script runs in this process."""
    os.chdir(folder)
    print_into(Path(output))
    os.environ |= variables | {ASKED: json.dumps(asked | {"pipe": pipe.fileno(), "process": os.getpid()})}
    torch.set_num_threads(1)  # as in other tests
    sys.argv = list(asked["command"])
    runpy.run_path(sys.argv[0], run_name="__main__")
