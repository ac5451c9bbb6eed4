"""Nobody listens any more, or the comparison cannot be: the sweep goes on, and tells by its exit code."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from strobe.app.sweep.ending import Ending, conclude
from strobe.compare import command
from support.files import plant

BAR = """
import sys
from rich.console import Console
from strobe.present.terminal import ProgressDisplay
with ProgressDisplay(Console(), 2) as display:
    for number in (1, 2):
        display.begins("seed=1", None)
        display.completes(number)
        display.say("it completed")
print("went on", file=sys.stderr)
"""
END = """
import sys
from omegaconf import OmegaConf
from strobe.app.sweep.ending import Ending
keys = {"baseline": None, "fail_if_slower": None}
Ending().on_multirun_end(OmegaConf.create({"sweep": keys, "hydra": {"sweep": {"dir": sys.argv[1]}}}))
"""
FAILED = {"repeat": 1, "directory": "0", "status": "failed", "error": "no", "seconds": 1.0}


def ended_unheard(code: str, *arguments: str) -> tuple[int, str]:
    """How a script that prints into a closed pipe ends, and what it says elsewhere."""
    ours, theirs = os.pipe()
    os.close(ours)
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments], stdout=theirs, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(theirs)
    return process.returncode, process.stderr


def sweep_in(folder: Path, status: str) -> None:
    sweep = {"command": "python train.py -m seed=1", "overrides": ["seed=1"], "repeats": 1, "seed": 0, "began": ""}
    cells = [{"number": 0, "overrides": ["seed=1"], "runs": [FAILED | {"status": status}]}]
    record = {"schema": 1, **sweep, "status": "completed", "seconds": 1.0, "cells": cells}
    plant(folder, {"sweep.json": json.dumps(record).encode(), "0/output.txt": b""})


def test_a_closed_pipe_does_not_end_what_shows_progress() -> None:
    assert ended_unheard(BAR) == (0, "went on\n")


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 1)])
def test_a_closed_pipe_does_not_change_the_exit_code(tmp_path: Path, status: str, code: int) -> None:
    sweep_in(tmp_path, status)
    assert ended_unheard(END, str(tmp_path))[0] == code


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 1)])
def test_a_comparison_that_cannot_be_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: str, code: int
) -> None:
    sweep_in(tmp_path, status)
    plant(tmp_path, {"comparison.json/in the way": b""})
    keys = {"baseline": None, "fail_if_slower": None}
    config = OmegaConf.create({"sweep": keys, "hydra": {"sweep": {"dir": str(tmp_path)}}})
    with pytest.raises(SystemExit) if code else nullcontext() as ended:
        Ending().on_multirun_end(config)
    assert code == (ended.value.code if ended else 0)
    said = capsys.readouterr().err
    assert said.startswith(f"The comparison cannot be written to {tmp_path}")
    assert said.count("\n") == 1


def test_a_mistake_in_the_comparison_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mistaken(*_: object) -> int:
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr(command, "conclude", mistaken)
    conclude(tmp_path)
    said = capsys.readouterr().err
    again = f"python -m strobe.compare {tmp_path} compares them\n"
    assert said == f"The runs could not be compared (of nothing); they are kept: {again}"
