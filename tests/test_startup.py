"""Help, a mistake in the configuration and shell completion need not wait for torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT
from test_architecture import APPLICATION, MODULES, inside

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
        ("--help", "data: cifar10, eurosat"),
        ("data=cifar10 loader=rasterio", "loader=rasterio does not read data=cifar10"),
        ("trainer.max_epoch=1", "Could not override 'trainer.max_epoch'"),
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


def test_the_instrument_loads_none_of_the_applications_libraries() -> None:
    modules = [name for name in MODULES if not any(inside(name, part) for part in APPLICATION)]
    modules = [name for name in modules if not name.endswith("__main__")]
    lightning = "import sys, lightning; own = set(sys.modules)"  # which imports torchvision where it is installed
    code = f"{lightning}; import {', '.join(modules)}; print(*(set(sys.modules) - own))"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True, timeout=120).split())
    assert {"strobe.compare.runs", "strobe.records.run"} <= loaded
    assert not {"hydra", "omegaconf", "rasterio", "skimage", "torchvision"} & loaded
