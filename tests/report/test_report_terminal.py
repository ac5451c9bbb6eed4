"""What the terminal shows at the end of a run."""

import shlex
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from strobe.records.steps import measure_steps
from strobe.report.terminal import print_summary


@pytest.fixture
def early(tmp_path: Path) -> dict[str, Any]:
    """The record of a run that ended before it had data, a trainer or a step."""
    choices = {"data": "eurosat", "loader": "skimage", "model": "resnet18"}
    known = {"status": "failed", "choices": choices, "batch_size": 32, "num_workers": 2, "traces": [], "metrics": {}}
    return known | measure_steps(tmp_path / "none.csv")


@pytest.fixture
def complete(early: dict[str, Any]) -> dict[str, Any]:
    return early | {
        "status": "completed",
        "data": "generated sample data",
        "accelerator": "cpu",
        "world_size": 2,
        "steps": {"measured": 40, "profiled": 8, "skipped": 3},
        "images_per_second": {"median": 1234.5, "low": 1200.4, "high": 1300.0},
        "step_seconds": {"total": 0.05, "data_wait": 0.03, "forward": 0.01, "backward": 0.0099, "other": 1e-4},
        "traces": ["tensorboard/a.pt.trace.json.gz", "tensorboard/b.pt.trace.json.gz"],
        "metrics": {"train/loss": 0.51, "train/accuracy": 0.8125, "test/accuracy": 0.75, "test/accuracy/Forest": 1.0},
    }


@pytest.fixture
def diagnosed(complete: dict[str, Any]) -> dict[str, Any]:
    """A run with ceilings, named callbacks, a verdict and findings."""
    finding = {
        "cause": "loader",
        "title": "The loader [red] cannot keep up",
        "evidence": "It gives 410 images/s.",
        "advice": "Read faster.",
        "overrides": ["loader=memory"],
        "predicted_speedup": {"median": 2.51, "low": 2.32, "high": 2.64},
    }
    callback = {"name": "SlowLogger", "kind": "callback", "mean": 0.001, "longest": 0.0012, "calls": 40}
    return complete | {
        "overrides": ["data=eurosat", "loader=skimage", "data.root=/a [bold]/b"],
        "environment": {"usable_cores": 2},
        "callbacks": [callback, callback | {"name": "Checkpoints", "longest": 0.09}],
        "ceilings": {"loader": 410.4, "model": 1060.0, "transfer": None, "joint": 295.0, "reason": None},
        "efficiency": 0.934,
        "verdict": "61% of each step waits [for] data.",
        "findings": [
            finding,
            finding
            | {"title": "Second", "overrides": [], "predicted_speedup": {"median": 1.1, "low": 1.0, "high": 1.2}},
            finding | {"title": "Third", "predicted_speedup": None},
            finding | {"title": "Fourth"},
        ],
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
    assert value(lines, "what") == "generated sample data, resnet18, loader skimage, batch 32, 2 workers, 2 \u00d7 cpu"
    assert value(lines, "images/s") == "1,234 (1,200 to 1,300), median of 40 steps"
    assert value(lines, "step") == "50.0 ms: data wait 60%, forward 20%, backward 20%"
    assert value(lines, "train") == "loss 0.510, accuracy 0.812"
    assert value(lines, "test") == "accuracy 0.750"
    assert not any(line.startswith("val ") for line in lines)
    assert value(lines, "run") == str(tmp_path)
    assert value(lines, "traces") == f"2, look at them with: python -m strobe.view {tmp_path} --perfetto"


def test_an_interrupted_run_shows_what_there_is(complete: dict[str, Any], tmp_path: Path) -> None:
    device = {"total": 0.05, "idle": 0.01, "forward": 0.04}
    (tmp_path / "report.html").touch()
    lines = shown(complete | {"status": "interrupted", "metrics": {}, "traces": [], "device_seconds": device}, tmp_path)
    assert "run interrupted" in lines[1]
    assert {line.split()[0] for line in lines[2:]} == {"what", "images/s", "step", "report"}
    assert value(lines, "step").endswith("; GPU idle 20%")
    assert value(lines, "report") == str(tmp_path / "report.html")


def test_a_run_that_failed_before_its_first_step(early: dict[str, Any], tmp_path: Path) -> None:
    lines = shown(early, tmp_path)
    assert "run failed" in lines[1]
    assert value(lines, "what") == "eurosat, resnet18, loader skimage, batch 32, 2 workers"
    assert {line.split()[0] for line in lines[2:]} == {"what", "run"}


def test_paths_can_be_copied_and_long_values_fold(
    complete: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("a" * 100) / "b [red] :smile: $HOME"
    lines = shown(complete | {"data": "Q" * 200}, folder, width=60)
    assert "".join(lines).count("Q") == 200
    assert all(len(line) <= 60 for line in lines if not line.startswith(("run", "traces")))
    assert shlex.split(value(lines, "run")) == [str(folder)]
    command = value(lines, "traces").partition("with: ")[2]
    assert shlex.split(command) == ["python", "-m", "strobe.view", str(folder), "--perfetto"]
    monkeypatch.chdir(tmp_path)
    assert value(shown(complete, tmp_path / "outputs" / "runs"), "run") == "outputs/runs"


def after(lines: list[str], start: str, count: int = 3) -> list[str]:
    """The lines from the first that starts so."""
    (first,) = (number for number, line in enumerate(lines) if line.startswith(start))
    return lines[first : first + count]


def test_ceilings_take_one_line(diagnosed: dict[str, Any], tmp_path: Path) -> None:
    def told(**changes: Any) -> str:
        ceilings = diagnosed["ceilings"] | changes
        return value(shown(diagnosed | {"ceilings": ceilings}, tmp_path, width=140), "ceilings")

    both = "loader 410, model 1,060 images/s"
    assert told() == f"{both}; together about 295 on 2 shared cores; efficiency 93% of that"
    assert told(joint=None) == f"{both}; efficiency 93% of the loader ceiling"
    assert told(joint=None, transfer=300) == f"{both}; efficiency 93% of the transfer ceiling"
    assert told(loader=None, joint=None) == "model 1,060 images/s; efficiency 93% of the model ceiling"
    assert told(loader=None, joint=None, reason="No loader.").endswith("of the model ceiling. No loader")
    assert told(loader=None, model=None, joint=None, reason="ceilings=false.") == "not measured: ceilings=false"


def test_callbacks_are_named_when_they_take_a_hundredth_of_the_step(diagnosed: dict[str, Any], tmp_path: Path) -> None:
    assert value(shown(diagnosed, tmp_path), "callbacks") == "SlowLogger 1 ms (2%), Checkpoints 1 ms (2%, once 90 ms)"
    one = diagnosed["callbacks"][0]
    small = diagnosed | {"callbacks": [one | {"mean": 0.0004}]}
    assert not any(line.startswith("callbacks") for line in shown(small, tmp_path))
    many = diagnosed | {"callbacks": [one | {"name": f"C{n}", "mean": n / 1000} for n in range(6)]}
    assert value(shown(many, tmp_path), "callbacks") == "C5 5 ms (10%), C4 4 ms (8%), C3 3 ms (6%), 2 more"


def test_the_verdict_and_three_findings_follow_the_figures(diagnosed: dict[str, Any], tmp_path: Path) -> None:
    lines = shown(diagnosed, tmp_path)
    order = ["test ", "61% of each step waits [for] data.", "The loader", "Second", "Third", "run  "]
    places = [next(number for number, line in enumerate(lines) if line.startswith(start)) for start in order]
    assert places == sorted(places)
    title, evidence, command = after(lines, "The loader")
    assert title == "The loader [red] cannot keep up. Predicted: 2.5x (2.3 to 2.6)"
    assert evidence == "It gives 410 images/s."
    words = shlex.split(command)
    assert words[:2] == ["python", "train.py"]
    assert {"data=eurosat", "loader=memory"} < set(words)
    assert "loader=skimage" not in words
    assert after(lines, "Second") == ["Second. Predicted: up to 1.2x", evidence, "Read faster."]
    assert after(lines, "Third", 1) == ["Third"]
    assert not any("Fourth" in line for line in lines)


@pytest.mark.parametrize("width", [30, 80, 140])
def test_commands_keep_one_line_and_prose_is_wrapped(diagnosed: dict[str, Any], tmp_path: Path, width: int) -> None:
    long = diagnosed | {"overrides": [f"model.lr=0.{'0' * 300}1"], "verdict": "word " * 90}
    lines = shown(long, tmp_path, width)
    assert len([line for line in lines if line.startswith("python train.py") and len(line) > 300]) == 2
    prose = [line for line in lines if not line.startswith(("python", "run  ", "traces"))]
    assert all(len(line) <= width for line in prose)
    assert sum(line.split().count("word") for line in lines) == 90


def test_what_the_verdict_tells_is_not_told_again(diagnosed: dict[str, Any], tmp_path: Path) -> None:
    verdict = "The loader [red] cannot keep up. Predicted: loader=memory -> 2.5x (2.3 to 2.6)."
    lines = shown(diagnosed | {"verdict": verdict, "findings": diagnosed["findings"][:2]}, tmp_path)
    _, evidence, command = after(lines, verdict)
    assert evidence == "It gives 410 images/s."
    assert "loader=memory" in shlex.split(command)
    assert sum("The loader [red]" in line for line in lines) == sum("2.5x" in line for line in lines) == 1
    assert after(lines, "Second", 1)
    nothing = diagnosed["findings"][0] | {"cause": "nothing", "overrides": []}
    lines = shown(diagnosed | {"findings": [nothing], "verdict": "Nothing to fix."}, tmp_path)
    assert "Nothing to fix." in lines
    assert not any(nothing["title"] in line for line in lines)


def test_colours_are_for_terminals_only(
    diagnosed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def printed(*, terminal: bool) -> str:
        output = StringIO()
        print_summary(diagnosed, tmp_path, Console(file=output, force_terminal=terminal))
        return output.getvalue()

    assert "\x1b[" in printed(terminal=True)
    assert "\x1b[" not in printed(terminal=False)


@pytest.mark.parametrize("key", ["verdict", "findings", "ceilings", "callbacks", "efficiency", "environment"])
@pytest.mark.parametrize("missing", [True, False], ids=["absent", "null"])
def test_a_record_may_lack_what_was_added_later(
    diagnosed: dict[str, Any], tmp_path: Path, key: str, missing: bool
) -> None:
    changed = {name: content for name, content in diagnosed.items() if name != key or not missing}
    lines = shown(changed if missing else changed | {key: None}, tmp_path)
    assert value(lines, "images/s").startswith("1,234")
    assert value(lines, "run") == str(tmp_path)
