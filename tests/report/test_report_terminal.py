"""What the terminal shows at the end of a run."""

import shlex
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from strobe.records.steps import measure_steps
from strobe.report.terminal import print_summary
from support.pages import complete

WHAT = "EuroSAT, resnet18, loader skimage, batch 128, 4 workers"


def early() -> dict[str, Any]:
    """The record of a run that ended before it had data, a trainer or a step."""
    known = {key: complete()[key] for key in ("choices", "batch_size", "num_workers")}
    return known | {"status": "failed", "traces": [], "metrics": {}} | measure_steps(Path("none.csv"))


def plain() -> dict[str, Any]:
    """A run without a diagnosis."""
    seconds = {"total": 0.05, "data_wait": 0.03, "forward": 0.01, "backward": 0.0099, "other": 1e-4}
    unknown = dict.fromkeys(("verdict", "findings", "ceilings", "callbacks", "device_seconds"))
    return complete() | unknown | {"step_seconds": seconds}


def diagnosed() -> dict[str, Any]:
    """A run with shared cores, a verdict that names no finding, and four findings."""
    (found,) = complete()["findings"]
    found |= {"title": "The loader [red] cannot keep up"}
    bound = {"median": 1.1, "low": 1.0, "high": 1.2}
    second = found | {"title": "Second", "overrides": [], "predicted_speedup": bound}
    more = [second, found | {"title": "Third", "predicted_speedup": None}, found | {"title": "Fourth"}]
    return complete() | {
        "ceilings": complete()["ceilings"] | {"joint": 3100.0},
        "verdict": "61% of each step waits [for] data.",
        "findings": [found, *more],
    }


def shown(summary: dict[str, Any], run_dir: Path, width: int = 100) -> list[str]:
    output = StringIO()
    print_summary(summary, run_dir, Console(file=output, width=width))
    return output.getvalue().splitlines()


def value(lines: list[str], name: str) -> str:
    (line,) = (line for line in lines if line.startswith(f"{name}  "))
    return line.removeprefix(name).strip()


def test_a_completed_run(tmp_path: Path) -> None:
    lines = shown(plain(), tmp_path)
    assert "run completed" in lines[1]
    assert value(lines, "what") == f"{WHAT}, 1 \u00d7 cuda, bf16-mixed"
    included = "waiting, validation and saving included"
    wide = value(shown(plain(), tmp_path, 160), "images/s")
    assert wide == f"1,463, {included}; the median step alone ran at 3,180 (3,171 to 3,188)"
    assert value(lines, "step") == "50 ms, mean of 94 steps: data wait 60%, forward 20%, backward 20%"
    assert value(lines, "train") == "loss 1.500"
    assert value(lines, "test") == "accuracy 0.500"
    assert value(lines, "val") == "accuracy 0.250"
    assert value(lines, "run") == str(tmp_path)
    assert value(lines, "traces") == f"1; to look at them: strobe view {tmp_path} --perfetto"


def test_ranks_take_one_line(tmp_path: Path) -> None:
    own = {"0": 0.04, "1": 0.29}
    ranks = {"own_seconds": own, "slowdown": {"median": 1.76, "low": 1.7, "high": 1.8, "n": 90}}
    told = value(shown(plain() | {"ranks": ranks}, tmp_path, 150), "ranks")
    said = "290 ms own work a step on rank 1, 40 ms on rank 0; the slowest one of a step 1.76x the mean (1.70 to 1.80)"
    assert told == said


def test_a_single_step_is_not_several(tmp_path: Path) -> None:
    nothing = {"median": None, "low": None, "high": None}
    steps = {"measured": 0, "profiled": 0, "skipped": 1}
    none = {"images_per_second": nothing, "overall_images_per_second": None, "steps": steps}
    lines = shown(plain() | none, tmp_path)
    assert "Too short: the only step was warm-up; train longer." in lines
    lines = shown(plain() | none | {"status": "failed"}, tmp_path)
    assert "Too short: the only step was warm-up." in lines
    noisy = {"machine": {"others": 0.5, "own": 0.4, "idle": 0.1, "delayed": 0.47}}
    lines = " ".join(map(str.strip, shown(plain() | none | noisy, tmp_path)))
    assert "train longer. Noisy: other processes kept training from its cores for 47% of the time." in lines


def test_a_model_of_ones_own_has_its_name(tmp_path: Path) -> None:
    assert "resnet18" in value(shown(plain(), tmp_path), "what")
    (tmp_path / ".hydra").mkdir()
    for target, name in {"theirs.Net": "Net", "strobe.app.model.classifier.ImageClassifier": "resnet18"}.items():
        (tmp_path / ".hydra" / "config.yaml").write_text(f"model:\n  _target_: {target}\n")
        assert value(shown(plain(), tmp_path), "what").startswith(f"EuroSAT, {name}, loader")


def test_an_interrupted_run_shows_what_there_is(tmp_path: Path) -> None:
    device = {"total": 0.05, "idle": 0.01, "forward": 0.04}
    (tmp_path / "report.html").touch()
    summary = plain() | {"status": "interrupted", "metrics": {}, "traces": [], "device_seconds": device}
    lines = shown(summary | {"trace_evidence": None}, tmp_path, 160)
    assert "run interrupted" in lines[1]
    assert {line.split()[0] for line in lines[2:]} == {"what", "images/s", "step", "report"}
    assert value(lines, "step").endswith("; GPU idle 20%")
    traced = summary["trace_evidence"]  # which also tells what a GPU idles between the kernels of a phase
    busy = traced["device_busy"] * traced["step_seconds"]
    assert value(shown(summary, tmp_path, 160), "step").endswith(f"; GPU idle {1 - busy / 0.05:.0%}")
    assert value(lines, "report") == str(tmp_path / "report.html")


def test_a_run_that_failed_before_its_first_step(tmp_path: Path) -> None:
    lines = shown(early(), tmp_path)
    assert "run failed" in lines[1]
    assert value(lines, "what") == WHAT.replace("EuroSAT", "eurosat")
    assert {line.split()[0] for line in lines[2:]} == {"what", "run"}


def test_paths_can_be_copied_and_long_values_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("a" * 100) / "b [red] :smile: $HOME"
    lines = shown(plain() | {"data": "Q" * 200}, folder, width=60)
    assert "".join(lines).count("Q") == 200
    assert all(len(line) <= 60 for line in lines if not line.startswith(("run", "traces")))
    assert shlex.split(value(lines, "run")) == [str(folder)]
    command = value(lines, "traces").partition("at them: ")[2]
    assert shlex.split(command) == ["strobe", "view", str(folder), "--perfetto"]
    monkeypatch.chdir(tmp_path)
    assert value(shown(plain(), tmp_path / "outputs" / "runs"), "run") == "outputs/runs"


def after(lines: list[str], start: str, count: int = 3) -> list[str]:
    """The lines from the first that starts so."""
    (first,) = (number for number, line in enumerate(lines) if line.startswith(start))
    return lines[first : first + count]


def test_ceilings_take_one_line(tmp_path: Path) -> None:
    def told(**changes: Any) -> str:
        ceilings = diagnosed()["ceilings"] | changes
        return value(shown(diagnosed() | {"ceilings": ceilings}, tmp_path, width=160), "ceilings")

    both, reaches = "loader alone 3,230, model alone 8,120 images/s", "this run's 1,463 is 45% of"
    assert told(joint=3000.0) == f"{both}; together about 3,000 on 16 shared cores; {reaches} that"
    assert told(joint=None) == f"{both}; {reaches} the loader alone"
    assert told(joint=None, storage={"rate": 2900.0}).startswith(f"storage alone 2,900, {both}; {reaches} the loader")
    assert told(joint=None, transfer=3100) == f"{both}; {reaches} the transfer alone"
    assert told(joint=1000.0).endswith("; a ceiling was measured too low: training was faster")
    assert told(joint=None, drift=0.07).endswith("of the loader alone; measured again, the same ceiling was 7% apart")
    assert told(loader=None, joint=None) == f"model alone 8,120 images/s; {reaches} the model alone"
    assert told(loader=None, joint=None, reason="No loader.").endswith("the model alone. No loader")
    assert told(loader=None, model=None, joint=None, reason="ceilings=false.") == "not measured: ceilings=false"
    wide = {"median": 1463.0, "low": 1200.0, "high": 1700.0}  # steps may be no faster than the ceiling
    uncertain = diagnosed() | {"images_per_second": wide, "ceilings": diagnosed()["ceilings"] | {"joint": 1320.0}}
    told_so = value(shown(uncertain, tmp_path, width=200), "ceilings")
    assert told_so.endswith("; this run reached 1,463, so these are too uncertain to compare with")


def test_callbacks_are_named_when_they_take_a_hundredth_of_the_step(tmp_path: Path) -> None:
    assert value(shown(complete(), tmp_path), "callbacks") == "Pictures 600 µs (1%, once 240 ms)"
    one = complete()["callbacks"][0] | {"longest": 0.006}
    many = complete() | {"callbacks": [one | {"name": f"C{n}", "mean": n / 1000} for n in range(6)]}
    assert value(shown(many, tmp_path), "callbacks") == "C5 5 ms (12%), C4 4 ms (10%), C3 3 ms (7%), 2 more"
    small = complete() | {"callbacks": [one | {"mean": 0.0004}]}
    assert not any(line.startswith("callbacks") for line in shown(small, tmp_path))


def test_the_verdict_and_three_findings_follow_the_figures(tmp_path: Path) -> None:
    lines = shown(diagnosed(), tmp_path)
    order = ["61% of each step waits [for] data.", "The loader", "Second", "Third", "what ", "test ", "run  "]
    places = [next(number for number, line in enumerate(lines) if line.startswith(start)) for start in order]
    assert places == sorted(places)
    title, evidence, command = after(lines, "The loader")
    assert title == "The loader [red] cannot keep up. Predicted: loader=memory -> 2.5x (2.3 to 2.6)"
    assert evidence == "24.6 of 40.5 ms a step are spent waiting."
    words = shlex.split(command)
    assert words[:2] == ["python", "train.py"]
    assert {"data=eurosat", "loader=memory"} < set(words)
    assert "loader=skimage" not in words
    told = [
        evidence,
        "With no waiting at all, training would be up to 1.20x as fast.",
        "Hold the decoded images in memory.",
    ]
    assert " ".join(map(str.strip, after(lines, "Second", 4))) == " ".join(["Second", *told])
    assert after(lines, "Third", 1) == ["Third"]
    assert not any("Fourth" in line for line in lines)


@pytest.mark.parametrize("width", [30, 80, 140])
def test_commands_keep_one_line_and_prose_is_wrapped(tmp_path: Path, width: int) -> None:
    long = diagnosed() | {"overrides": [f"model.lr=0.{'0' * 300}1"], "verdict": "word " * 90}
    lines = shown(long, tmp_path, width)
    assert len([line for line in lines if line.startswith("python train.py") and len(line) > 300]) == 2
    prose = [line for line in lines if not line.startswith(("python", "run  ", "traces"))]
    assert all(len(line) <= width for line in prose)
    assert sum(line.split().count("word") for line in lines) == 90


def test_what_the_verdict_tells_is_not_told_again(tmp_path: Path) -> None:
    verdict = "The loader [red] cannot keep up. Predicted: loader=memory -> 2.5x (2.3 to 2.6)."
    lines = shown(diagnosed() | {"verdict": verdict, "findings": diagnosed()["findings"][:2]}, tmp_path)
    _, evidence, command = after(lines, verdict)
    assert evidence == "24.6 of 40.5 ms a step are spent waiting."
    assert "loader=memory" in shlex.split(command)
    assert sum("The loader [red]" in line for line in lines) == sum("2.5x" in line for line in lines) == 1
    assert after(lines, "Second", 1)
    by_hand = diagnosed()["findings"][1]
    told = {"findings": [by_hand], "verdict": f"{by_hand['title']}. {by_hand['advice']}"}
    assert sum(by_hand["advice"] in line for line in shown(diagnosed() | told, tmp_path)) == 1
    nothing = diagnosed()["findings"][0] | {"cause": "nothing", "overrides": []}
    lines = shown(diagnosed() | {"findings": [nothing], "verdict": "Nothing to fix."}, tmp_path)
    assert "Nothing to fix." in lines
    assert not any(nothing["title"] in line for line in lines)


def test_colours_are_for_terminals_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def printed(*, terminal: bool) -> str:
        output = StringIO()
        print_summary(diagnosed(), tmp_path, Console(file=output, force_terminal=terminal))
        return output.getvalue()

    assert "\x1b[" in printed(terminal=True)
    assert "\x1b[" not in printed(terminal=False)


@pytest.mark.parametrize("key", ["verdict", "findings", "ceilings", "callbacks", "efficiency", "environment"])
@pytest.mark.parametrize("missing", [True, False], ids=["absent", "null"])
def test_a_record_may_lack_what_was_added_later(tmp_path: Path, key: str, missing: bool) -> None:
    changed = {name: content for name, content in diagnosed().items() if name != key or not missing}
    lines = shown(changed if missing else changed | {key: None}, tmp_path)
    assert value(lines, "images/s").startswith("1,463")
    assert value(lines, "run") == str(tmp_path)
