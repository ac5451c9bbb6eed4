"""Paired trials of equals: how their false alarms are counted; trainings are made up."""

import json
import math
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
from rich.console import Console

from strobe.measure.timing import Block
from strobe.process.fork import Failure
from strobe.validation.aa_test import main, single, told


class Made:
    """A training at about 1000 images/s; ``gain`` times as fast for candidates, and broken for ``fails``."""

    random = Random(1)
    alive = 0

    def __init__(self, overrides: list[str], folder: Path, *, timeout: float) -> None:
        given = dict(text.split("=") for text in overrides)
        self.rate = 1e6 * (float(given.get("gain", 1)) if folder.name == "B" else 1.0)
        self.fails = given.get("fails")

    def __enter__(self) -> Self:
        Made.alive += 1
        return self

    def __exit__(self, *_: object) -> None:
        Made.alive -= 1

    def start(self) -> Block | Failure:
        return Failure("there is no data") if self.fails == "start" else Block(8, 0.1, 1)

    def turn(self, seconds: float) -> Block | Failure:
        return Failure("it ended") if self.fails else Block(round(self.rate * self.random.gauss(1, 0.05)), 1.0, 10)


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str]:
    with pytest.raises(SystemExit) as stop:
        main(["--trials", *arguments], Made)
    assert Made.alive == 0
    return stop.value.code, "".join(capsys.readouterr())


def test_trials_of_equals_are_counted_until_the_time_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = ended(capsys, "--minutes", "0.01", "--keep", str(tmp_path))
    assert code == 0
    kept = json.loads((tmp_path / "trials.json").read_text())
    assert f"[{len(kept)}] B is " in said
    assert {len(ratios) for ratios in kept} <= {3, 6, 12}
    assert f"of {len(kept)} (" in said
    assert "a search of 10 proposals of equals finds one faster: " in said or len(kept) < 10
    code, again = ended(capsys, "--from", str(tmp_path))
    assert code == 0
    assert said.endswith(again)


def test_what_is_no_equal_misses_the_aim(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(capsys, "gain=2", "--minutes", "0.01")
    assert code == 1
    assert "a trial of equals finds one slower: 0 of " in said


def test_a_share_is_told_with_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    equal, faster = [math.exp(away) for away in (-0.02, 0.01, 0.01)], [1.5, 1.52, 1.49]
    assert told([equal] * 38 + [faster] * 2, Console(width=200))
    said = capsys.readouterr().out
    assert "a trial of equals finds one faster: 2 of 40 (1% to 17%, 95%; aim: at most 5%)" in said  # Clopper-Pearson
    assert "a search of 10 proposals of equals finds one faster: 1 of 4 (" in said


def test_a_single_trial_is_judged_at_the_look_that_would_have_ended_it() -> None:
    early = [1.1, 1.101, 1.099]
    assert (single([*early, 1.0, 1.0, 1.0]).verdict, single([*early, 1.0, 1.0, 1.0]).n) == ("faster", 3)
    assert single([1.0, 0.99, 1.01, 2.0, 2.0, 2.0]).n == 3  # it promised nothing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fails=start",), "The configuration cannot train: there is no data"),
        (("fails=later",), "A training broke off: it ended"),
        (("--minutes", "0"), "must be above 0"),
        (("--from", "tests"), "tests has no trials to read; give a folder that --trials --keep has made"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = ended(capsys, *arguments)
    assert code not in (0, None)
    assert message in f"{code}{said}"
