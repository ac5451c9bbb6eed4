"""The end of a sweep: its comparison, its gate, and its exit code, also when nobody listens any more."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from strobe.app.sweep.ending import Ending, conclude
from strobe.compare import command
from support.files import plant
from support.run_folders import write_sweep

STEADY = [100, 101, 99, 100]


def config(folder: Path, **keys: Any) -> Any:
    sweep = {"repeats": 4, "seed": 0, "timeout_seconds": None, "baseline": None, "fail_if_slower": "5%"} | keys
    choices = {"hydra/launcher": "processes"}
    return OmegaConf.create({"sweep": sweep, "hydra": {"sweep": {"dir": str(folder)}, "runtime": {"choices": choices}}})


def ended(folder: Path, **keys: Any) -> object:
    """The exit code of a sweep whose runs have ended."""
    try:
        Ending().on_multirun_end(config(folder, **keys))
    except SystemExit as end:
        return end.code
    return 0


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"repeats": 1}, "sweep.fail_if_slower=5% cannot be told from 1 run of each cell; give sweep.repeats=5"),
        ({"fail_if_slower": "much"}, "sweep.fail_if_slower=much is not a share; give one below 100%"),
    ],
)
def test_a_gate_that_cannot_open_is_refused_before_anything_is_trained(
    tmp_path: Path, keys: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        Ending().on_multirun_start(config(tmp_path, **keys))
    assert said in capsys.readouterr().err
    Ending().on_multirun_start(config(tmp_path))


@pytest.mark.parametrize("key", ["baseline", "fail_if_slower"])
def test_a_single_run_has_no_gate(tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        Ending().on_run_start(config(tmp_path, **{"repeats": 1, "fail_if_slower": None, key: "5%"}))
    assert f"sweep.{key}=5% is for a sweep; add -m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ([("loader=pil", STEADY), ("loader=native", STEADY)], 0),
        ([("loader=pil", STEADY), ("loader=native", [50, 51, 50, 50])], 3),
        ([("loader=pil", STEADY), ("loader=native", ["it broke"] * 4)], 3),
        ([("loader=pil", STEADY), ("loader=native", [100, "it broke", 99, 100])], 4),
        ([("loader=pil", STEADY)], 4),
    ],
)
def test_the_exit_code_is_the_gates(tmp_path: Path, cells: list[Any], code: int) -> None:
    write_sweep(tmp_path / "now", cells)
    assert ended(tmp_path / "now") == code
    assert ended(tmp_path / "now", fail_if_slower=None) == 0


def test_a_sweep_is_held_against_an_earlier_one(tmp_path: Path) -> None:
    then = write_sweep(tmp_path / "then", [("loader=pil", STEADY)])
    now = write_sweep(tmp_path / "now", [("loader=pil", [80, 81, 80, 80])])
    assert ended(now, baseline=str(then)) == 3
    assert ended(then, baseline=str(now)) == 0
    assert ended(now, baseline=str(tmp_path / "nowhere")) == 4  # a comparison that cannot be made opens nothing


BAR = """
import sys
from rich.console import Console
from strobe.present.terminal import ProgressDisplay
from strobe.process.output import lasting_output
lasting_output()  # as each command does
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
from strobe.process.output import lasting_output
lasting_output()
keys = {"baseline": None, "fail_if_slower": None}
Ending().on_multirun_end(OmegaConf.create({"sweep": keys, "hydra": {"sweep": {"dir": sys.argv[1]}}}))
"""


def ended_unheard(code: str, *arguments: str) -> tuple[int, str]:
    """How a script that prints into a closed pipe ends, and what it says elsewhere."""
    ours, theirs = os.pipe()
    os.close(ours)
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments], stdout=theirs, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(theirs)
    return process.returncode, process.stderr


def test_a_closed_pipe_does_not_end_what_shows_progress() -> None:
    assert ended_unheard(BAR) == (0, "went on\n")


@pytest.mark.parametrize(("outcome", "code"), [(100, 0), ("it broke", 1)])
def test_a_closed_pipe_does_not_change_the_exit_code(tmp_path: Path, outcome: Any, code: int) -> None:
    write_sweep(tmp_path, [("seed=1", [outcome])])
    assert ended_unheard(END, str(tmp_path))[0] == code


@pytest.mark.parametrize(("outcome", "code"), [(100, 0), ("it broke", 1)])
def test_a_comparison_that_cannot_be_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: Any, code: int
) -> None:
    write_sweep(tmp_path, [("seed=1", [outcome])])
    plant(tmp_path, {"comparison.json/in the way": b""})
    assert ended(tmp_path, fail_if_slower=None) == code
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
    again = f"strobe compare {tmp_path} compares them\n"
    assert said == f"The runs could not be compared (of nothing); they are kept: {again}"
