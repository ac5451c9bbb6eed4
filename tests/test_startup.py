"""Help, a mistake and shell completion need not wait for torch, nor the instrument for the application's libraries."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.places import ROOT
from test_architecture import APPLICATION, HEAVY, MODULES, inside

FOREIGN = {"hydra", "omegaconf", "rasterio", "skimage", "torchvision"}
BEFORE_THE_RUN = ("train", "hydra_plugins.strobe_processes", "strobe.app.config.checks", "strobe.app.sweep.ending")


def at_import(module: str) -> Iterator[str]:
    """Full names of what a module imports when it is imported: not in functions, nor for types alone."""
    waiting: list[ast.AST] = [MODULES[module]]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef):
            waiting += ast.iter_child_nodes(node)


def loaded_with(module: str) -> set[str]:
    """Full names that are imported with a module, by way of this project's other modules too."""
    found: set[str] = set()
    waiting = {module}
    while waiting:
        names = set(at_import(waiting.pop())) - found
        found |= names
        waiting |= {name if name in MODULES else name.rpartition(".")[0] for name in names} & MODULES.keys()
    return found


@pytest.mark.parametrize("module", BEFORE_THE_RUN)
def test_what_hydra_needs_before_the_run_imports_nothing_heavy(module: str) -> None:
    loaded = loaded_with(module)
    assert any(inside(name, "hydra") for name in loaded)
    assert not {name.partition(".")[0] for name in loaded} & HEAVY


def started(folder: Path, *arguments: str, **environment: str) -> str:
    """What `train.py`, started in a folder, says on both streams; it imports no torch."""
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
    assert not HEAVY & modules
    return "\n".join([done.stdout, *(line for line in lines if line not in times)])


def test_a_mistake_is_told_before_torch(tmp_path: Path) -> None:
    said = started(tmp_path, "data=cifar10", "loader=rasterio")
    assert "loader=rasterio does not read data=cifar10" in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_completion_comes_before_torch(tmp_path: Path) -> None:
    line = "python train.py experiment=euro"
    typed = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_CWORD": "2"}
    assert "experiment=eurosat_13band" in started(tmp_path, "-sc", "query=bash", **typed).split()


def test_the_instrument_loads_none_of_the_applications_libraries() -> None:
    modules = [name for name in MODULES if not any(inside(name, part) for part in APPLICATION)]
    modules = [name for name in modules if not name.endswith("__main__")]
    lightning = "import sys, lightning; own = set(sys.modules)"  # which imports torchvision where it is installed
    code = f"{lightning}; import {', '.join(modules)}; print(*(set(sys.modules) - own))"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True, timeout=120).split())
    assert {"strobe.compare.runs", "strobe.records.run"} <= loaded
    assert not FOREIGN & loaded
