"""Sweeps of several processes a cell, and of another launcher."""

import json
from pathlib import Path

import pytest

from strobe.records.run import read_summary
from support.sweeping import swept

LEAST = ("trainer.limit_train_batches=1", "trainer.limit_val_batches=0", "data.batch_size=4")


def test_a_cell_may_have_two_devices(sample_root: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    swept(sample_root, sweep, "trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", *LEAST)
    (summary,) = sweep.glob("*/summary.json")
    assert read_summary(summary)["world_size"] == 2
    (cell,) = json.loads((sweep / "sweep.json").read_text())["cells"]
    assert [run["status"] for run in cell["runs"]] == ["completed"]


def test_another_launchers_runs_are_compared_too(sample_root: Path, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs pip install .[slurm]")
    sweep = tmp_path / "sweep"
    swept(sample_root, sweep, "hydra/launcher=submitit_local", *LEAST)
    assert not (sweep / "sweep.json").exists()
    (cell,) = json.loads((sweep / "comparison.json").read_text())["cells"]
    assert (cell["status"], len(cell["runs"])) == ("completed", 1)
