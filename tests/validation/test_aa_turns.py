"""Trials and duels of equals: how their false alarms are counted; trainings are made up."""

import json
import math
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
from rich.console import Console

from strobe.measure.timing import Block
from strobe.process.fork import Failure
from strobe.validation import aa_test, aa_turns
from strobe.validation.aa_turns import single, told_of_duels, told_of_trials

EQUAL = [math.exp(away) for away in (-0.02, 0.01, 0.01)]


class Made:
    """A training at about 1000 images/s; ``gain`` times as fast for candidates, and broken for ``fails``."""

    random = Random(1)
    alive = 0

    def __init__(self, given: list[str], folder: Path, **_: Any) -> None:
        own = dict(text.split("=") for text in given if "=" in text)
        self.rate = 1e6 * (float(own.get("gain", 1)) if folder.name == "B" else 1.0)
        self.fails = own.get("fails")

    def __enter__(self) -> Self:
        Made.alive += 1
        return self

    def __exit__(self, *_: object) -> None:
        Made.alive -= 1

    def start(self) -> Block | Failure:
        return Failure("there is no data") if self.fails == "start" else Block(8, 0.1, 1)

    def turn(self, seconds: float) -> Block | Failure:
        return Failure("it ended") if self.fails else Block(round(self.rate * self.random.gauss(1, 0.05)), 1.0, 10)


@pytest.fixture
def ended(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives the command's exit code, or the sentence in its place, and what it says."""
    monkeypatch.setattr(aa_test, "Foreign", Made)

    def run(*arguments: str) -> tuple[Any, str]:
        with pytest.raises(SystemExit) as stop:
            aa_test.main(arguments, Made)
        assert Made.alive == 0
        return stop.value.code, "".join(capsys.readouterr())

    return run


def test_trials_of_equals_are_counted_until_the_time_is_over(ended: Any, tmp_path: Path) -> None:
    code, said = ended("--trials", "--minutes", "0.01", "--keep", str(tmp_path))
    assert code == 0
    kept = json.loads((tmp_path / "trials.json").read_text())
    assert f"[{len(kept)}] B is " in said
    assert {len(ratios) for ratios in kept} <= {3, 6, 12}
    assert f"of {len(kept)} (" in said
    assert "a search of 10 proposals of equals finds one faster: " in said or len(kept) < 10
    code, again = ended("--trials", "--from", str(tmp_path))
    assert code == 0
    assert said.endswith(again)


def test_scripts_fight_themselves_until_the_time_is_over(ended: Any, tmp_path: Path) -> None:
    code, said = ended("--duels", "a.py", "b.py --lr 1", "--minutes", "0.005", "--keep", str(tmp_path))
    kept = json.loads((tmp_path / "duels.json").read_text())
    assert [script for script, _ in kept[:2]] == ["a.py", "b.py --lr 1"][: len(kept)]
    assert {len(ratios) for _, ratios in kept} <= {aa_turns.QUADS // 2, aa_turns.QUADS}
    assert f" of {len(kept)} (" in said
    again, told = ended("--from", str(tmp_path))
    assert again == code
    assert said.endswith(told)


def test_what_is_no_equal_misses_the_aim(ended: Any) -> None:
    code, said = ended("--trials", "gain=2", "--minutes", "0.01")
    assert code == 1
    assert "a trial of equals finds one slower: 0 of " in said


def test_a_share_is_told_with_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    assert told_of_trials([EQUAL] * 38 + [[1.5, 1.52, 1.49]] * 2, Console(width=200))
    said = capsys.readouterr().out  # by Clopper and Pearson
    assert "a trial of equals finds one faster: 2 of 40 (5%, 95% interval 1% to 17%; aim: at most 5%)" in said
    assert "a search of 10 proposals of equals finds one faster: 1 of 4 (" in said


@pytest.mark.parametrize(("wrong", "good"), [(2, True), (9, False)])
def test_differences_between_equals_are_counted(wrong: int, good: bool, capsys: pytest.CaptureFixture[str]) -> None:
    equal = EQUAL + [math.exp(away) for away in (0.02, -0.01, 0)]
    duels = [("a.py", equal)] * (40 - wrong) + [("b.py", [0.9 * each for each in equal])] * wrong
    assert told_of_duels(duels, Console(width=200)) is good
    said = capsys.readouterr().out
    assert f"duels of equals that find a difference: {wrong} of 40 (" in said
    assert "2 scripts; the median interval reaches " in said


def test_a_single_trial_is_judged_at_the_look_that_would_have_ended_it() -> None:
    early = [1.1, 1.101, 1.099]
    assert (single([*early, 1.0, 1.0, 1.0]).verdict, single([*early, 1.0, 1.0, 1.0]).n) == ("faster", 3)
    assert single([1.0, 0.99, 1.01, 2.0, 2.0, 2.0]).n == 3  # it promised nothing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--trials", "fails=start"), "The configuration cannot train: there is no data"),
        (("--trials", "fails=later"), "The configuration broke off: it ended"),
        (("--trials", "--minutes", "0"), "must be above 0"),
        (("--trials", "--from", "tests"), "tests has no trials to read; give a folder that --trials --keep has made"),
        (("--duels", "a.py fails=start"), "a.py fails=start cannot train: there is no data"),
    ],
)
def test_mistakes_are_one_sentence(ended: Any, arguments: tuple[str, ...], message: str) -> None:
    code, said = ended(*arguments)
    assert code not in (0, None)
    assert message in f"{code}{said}"
