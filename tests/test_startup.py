"""Help, a mistake in the configuration and shell completion need not wait for torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT

HEAVY = {"torch", "lightning", "numpy"}


def imported(folder: Path, *arguments: str, **environment: str) -> tuple[set[str], str]:
    """The modules that `train.py`, started in a folder, imports, and what it says on both streams."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", ROOT / "train.py", *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stderr.splitlines()
    times = [line for line in lines if line.startswith("import time:")]
    modules = {line.rpartition("|")[2].strip() for line in times}
    assert "hydra" in modules
    return modules, "\n".join([done.stdout, *(line for line in lines if line not in times)])


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("--help", "data        cifar10, eurosat"),
        ("--help loader", "loader.scale=device"),
        ("data=cifar10 loader=rasterio", "loader=rasterio does not read data=cifar10"),
    ],
)
def test_an_answer_comes_before_torch(tmp_path: Path, arguments: str, answer: str) -> None:
    modules, said = imported(tmp_path, *arguments.split())
    assert answer in said
    assert "Traceback" not in said
    assert not HEAVY & modules
    assert not list(tmp_path.iterdir())


def test_a_completion_comes_before_torch(tmp_path: Path) -> None:
    line = "python train.py experiment=euro"
    modules, said = imported(tmp_path, "-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line)), COMP_CWORD="2")
    assert "experiment=eurosat_13band" in said.split()
    assert not HEAVY & modules
