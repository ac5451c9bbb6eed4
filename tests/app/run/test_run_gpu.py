"""Whole runs beside or on a GPU, each in a process of its own: what one does to CUDA, the next one must not see."""

from pathlib import Path
from typing import Any

import pytest
import torch

from strobe.diagnose.rank import diagnose
from strobe.records.run import load_record, read_summary
from support.processes import begin, ended
from support.runs import QUICK

pytestmark = pytest.mark.gpu
ON_GPU = ("trainer.accelerator=gpu", "trainer.devices=1")
ASSERTING = str(Path(__file__).with_name("asserting.py"))


def run(folder: Path, root: Path, *overrides: str, program: str = "train.py", code: int = 0) -> tuple[Any, str]:
    """The record of a run, and what it said."""
    keys = {override.partition("=")[0] for override in overrides}
    given = [*(one for one in QUICK if one.partition("=")[0] not in keys), *overrides, f"hydra.run.dir={folder}"]
    process = begin(program, *given, f"data.root={root}", "data.tiles_per_class=10")
    if code == 0:
        said = ended(process)
    else:
        said, _ = process.communicate(timeout=600)
        assert process.returncode == code, said
    return read_summary(folder / "summary.json"), said


def test_a_run_on_the_cpu_leaves_the_gpu_alone(tmp_path: Path, sample_root: Path) -> None:
    summary, _ = run(tmp_path / "run", sample_root)
    assert summary["accelerator"] == "cpu"
    assert summary["environment"]["gpu"] is None  # though Lightning begins CUDA, to keep its random states
    assert summary["memory"]["device_peak_bytes"] is None


def test_a_run_on_the_gpu_names_it(tmp_path: Path, sample_root: Path) -> None:
    summary, _ = run(tmp_path / "run", sample_root, *ON_GPU)
    assert summary["status"] == "completed"
    assert summary["environment"]["gpu"] == torch.cuda.get_device_name()
    assert summary["environment"]["gpu_capability"] == list(torch.cuda.get_device_capability())
    assert summary["memory"]["device_peak_bytes"] > 0
    assert summary["device_seconds"]["total"] > 0


def test_after_an_assertion_on_the_gpu_the_record_and_its_report_are_there(tmp_path: Path, sample_root: Path) -> None:
    summary, said = run(tmp_path / "run", sample_root, *ON_GPU, program=ASSERTING, code=1)
    assert "device-side assert" in said
    assert summary["status"] == "failed"
    assert "device-side assert" in summary["error"]["message"]
    assert sum(summary["steps"].values()) == 2
    assert (tmp_path / "run" / "report.html").is_file()


def test_the_ceilings_of_a_run_on_the_gpu_are_measured_there(tmp_path: Path, sample_root: Path) -> None:
    given = (*ON_GPU, "ceilings=true", "ceilings_seconds=0.3", "loader.scale=torch")
    summary, _ = run(tmp_path / "run", sample_root, *given)
    assert summary["ceilings"]["model"] > 0
    assert summary["ceilings"]["loader"] > 0


def test_what_lightning_asks_of_ranks_on_gpus_is_no_synchronisation(tmp_path: Path, sample_root: Path) -> None:
    given = (*ON_GPU, "profiler=trace", "data.batch_size=2", "trainer.limit_train_batches=10", "trainer.max_epochs=2")
    run(tmp_path / "run", sample_root, *given, program=str(Path(__file__).with_name("asking_ranks.py")))
    record = load_record(tmp_path / "run")
    record.summary["world_size"] = 2  # whose traces have the same
    assert None in [sync["phase"] for sync in record.summary["trace_evidence"]["syncs"]]
    assert "synchronisation" not in [finding.cause for finding in diagnose(record)]
