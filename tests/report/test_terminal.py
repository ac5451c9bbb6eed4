"""What the terminal shows at the end of a run."""

import shlex
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from strobe.record import measure_steps
from strobe.report.terminal import print_summary


@pytest.fixture
def early(tmp_path: Path) -> dict[str, Any]:
    """The record of a run that ended before it had data, a trainer or a step."""
    return {
        "status": "failed",
        "error": {"type": "DataError", "message": "data.root=nowhere"},
        "data": None,
        "overrides": [],
        "choices": {"data": "eurosat", "loader": "skimage", "model": "resnet18"},
        "batch_size": 32,
        "num_workers": 2,
        "accelerator": None,
        "world_size": None,
        **measure_steps(tmp_path / "none.csv"),
        "traces": [],
        "metrics": {},
    }


@pytest.fixture
def complete(early: dict[str, Any]) -> dict[str, Any]:
    phases = dict.fromkeys(early["step_seconds"], 0.0)
    return early | {
        "status": "completed",
        "error": None,
        "data": "generated sample data",
        "accelerator": "cpu",
        "world_size": 2,
        "steps": {"measured": 40, "profiled": 8, "skipped": 3},
        "images_per_second": {"median": 1234.5, "low": 1200.4, "high": 1300.0},
        "step_seconds": phases | {"total": 0.05, "data_wait": 0.03, "forward": 0.01, "backward": 0.0099, "other": 1e-4},
        "traces": ["tensorboard/a.pt.trace.json.gz", "tensorboard/b.pt.trace.json.gz"],
        "metrics": {"train/loss": 0.51, "train/accuracy": 0.8125, "test/accuracy": 0.75, "test/accuracy/Forest": 1.0},
    }


def shown(summary: dict[str, Any], run_dir: Path, width: int = 100) -> list[str]:
    output = StringIO()
    print_summary(summary, run_dir, Console(file=output, width=width))
    return output.getvalue().splitlines()


def value(lines: list[str], name: str) -> str:
    (line,) = (line for line in lines if line.startswith(f"{name}  "))
    return line.removeprefix(name).strip()


def test_a_completed_run(complete: dict[str, Any], tmp_path: Path) -> None:
    lines = shown(complete, tmp_path)
    assert "run completed" in lines[1]
    assert value(lines, "what") == "generated sample data, resnet18, loader skimage, batch 32, 2 workers, 2 x cpu"
    assert value(lines, "images/s") == "1,234 (1,200 to 1,300), median of 40 steps"
    assert value(lines, "step") == "50.0 ms: data wait 60%, forward 20%, backward 20%"
    assert value(lines, "train") == "loss 0.510, accuracy 0.812"
    assert value(lines, "test") == "accuracy 0.750"
    assert not any(line.startswith("val ") for line in lines)
    assert value(lines, "run") == str(tmp_path)
    assert value(lines, "traces") == f"2, look at them with: python -m strobe.view {tmp_path} --perfetto"


def test_an_interrupted_run_shows_what_there_is(complete: dict[str, Any], tmp_path: Path) -> None:
    lines = shown(complete | {"status": "interrupted", "metrics": {}, "traces": []}, tmp_path)
    assert "run interrupted" in lines[1]
    assert {line.split()[0] for line in lines[2:]} == {"what", "images/s", "step", "run"}


def test_a_run_that_failed_before_its_first_step(early: dict[str, Any], tmp_path: Path) -> None:
    lines = shown(early, tmp_path)
    assert "run failed" in lines[1]
    assert value(lines, "what") == "eurosat, resnet18, loader skimage, batch 32, 2 workers"
    assert {line.split()[0] for line in lines[2:]} == {"what", "run"}


def test_paths_can_be_copied(complete: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 100) / "b [red] :smile: $HOME"
    lines = shown(complete, folder, width=40)
    assert shlex.split(value(lines, "run")) == [str(folder)]
    command = value(lines, "traces").partition("with: ")[2]
    assert shlex.split(command) == ["python", "-m", "strobe.view", str(folder), "--perfetto"]


def test_paths_are_short(complete: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert value(shown(complete, tmp_path / "outputs" / "runs"), "run") == "outputs/runs"


def test_long_values_fold_and_lose_nothing(complete: dict[str, Any], tmp_path: Path) -> None:
    lines = shown(complete | {"data": "Q" * 200}, tmp_path, width=60)
    assert "".join(lines).count("Q") == 200
    assert all(len(line) <= 60 for line in lines if not line.startswith(("run", "traces")))
