"""Shared by all tests: real or generated tiles, and a run of the application in this process."""

import logging
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra._internal.utils
import pytest
import torch
from hydra.core.hydra_config import HydraConfig

from strobe.app.data.synthetic import generate
from strobe.records.steps import read_summary

# Two runs that wait for each other's threads on few cores are slower than two runs on one thread each.
torch.set_num_threads(1)
# Hydra takes the tracer of coverage for a debugger, under which it raises errors instead of reporting them.
hydra._internal.utils.is_under_debugger = lambda: False

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("STROBE_DATA", ROOT.parent / "shared" / "data"))

QUICK = (
    "trainer.accelerator=cpu",
    "trainer.max_epochs=1",
    "trainer.limit_train_batches=4",
    "trainer.limit_val_batches=1",
    "trainer.limit_test_batches=1",
    "trainer.num_sanity_val_steps=0",
    "trainer.enable_progress_bar=false",
    "data.batch_size=4",
    "profiler=none",
    "ceilings=false",
)


@dataclass(frozen=True)
class Ended:
    """How a run of the application ended."""

    code: int
    output: str  # standard output and error
    directory: Path

    @property
    def summary(self) -> dict[str, Any]:
        return read_summary(self.directory / "summary.json")


@pytest.fixture
def own_hydra() -> Iterator[None]:
    """Other tests' configuration is theirs again afterwards."""
    before = HydraConfig.instance().cfg
    yield
    HydraConfig.instance().cfg = before


@pytest.fixture(scope="session")
def sample_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which ``data=sample data.tiles_per_class=10`` finds its tiles."""
    root = tmp_path_factory.mktemp("data")
    generate(root / "tiles" / "seed42-10", tiles_per_class=10, seed=42)
    return root


@pytest.fixture(scope="session")
def tiles(sample_root: Path) -> Path:
    """A folder of class folders: real tiles where there are some, else generated ones. Not to be changed."""
    real = DATA / "EuroSAT_MS"
    return real if real.is_dir() else sample_root / "tiles" / "seed42-10"


@pytest.fixture
def train(
    tmp_path: Path, sample_root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run ``train.py`` with overrides in this process: by default a few steps on ten tiles a class."""

    def run(*overrides: str, quick: bool = True, name: str = "run") -> Ended:
        directory = tmp_path / name
        flags = [override for override in overrides if override.startswith("-")]
        keys = {override.partition("=")[0] for override in overrides}
        defaults = [given for given in QUICK if quick and given.partition("=")[0] not in keys]
        given = [*flags, *defaults, f"hydra.run.dir={directory}", *(o for o in overrides if o not in flags)]
        if not any(override.startswith(("data=", "experiment=")) for override in overrides):
            given += [f"data.root={sample_root}", "data.tiles_per_class=10"]
        monkeypatch.setattr(sys, "argv", ["train.py", *given])
        capfd.readouterr()
        code = 0
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
        finally:  # Hydra's handlers write to what this test captures
            root.handlers[:] = handlers
            root.setLevel(level)
        captured = capfd.readouterr()
        return Ended(code, re.sub(r"\x1b\[[0-9;]*m", "", captured.out + captured.err), directory)

    return run
