"""``python -m strobe.duel``: what it says, its exit codes, and its refusals; trainings are made up, but for one."""

from pathlib import Path
from random import Random
from typing import Any, Self

import pytest

from strobe.app.tuning.trainee import Ready, Trainee
from strobe.duel.__main__ import main
from strobe.measure.timing import Block
from strobe.process.fork import Failure
from support.suite_parts import NETWORK


class Made:
    """A training that is as fast as its overrides say."""

    def __init__(self, overrides: list[str], folder: Path, *, timeout: float) -> None:
        self.rate = float(overrides[0].removeprefix("rate="))
        self.random = Random(overrides[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def start(self) -> Ready | Failure:
        return Failure("there is no such rate") if self.rate < 0 else Ready(0.1, 8)

    def turn(self, seconds: float) -> Block | Failure:
        images = round(1e6 * self.rate * self.random.gauss(1, 0.02))
        return Block(images, 1.0, 10) if self.rate else Failure("it ended")


def said(capsys: pytest.CaptureFixture[str], *arguments: str, begin: Any = Made) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments, begin)
    found = capsys.readouterr()
    return int(ended.value.code or 0), found.out + found.err


@pytest.mark.parametrize(
    ("theirs", "ours", "code", "verdict"),
    [
        (1.0, 1.5, 0, "B is faster"),
        (1.0, 0.5, 3, "B is slower"),
        (1.0, 0.96, 4, "cannot tell"),
    ],
)
def test_the_gate_decides(
    theirs: float, ours: float, code: int, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = ("--", "python", "train.py", f"rate={theirs}", "--", "python3.11", "./train.py", f"rate={ours}")
    ended, text = said(capsys, "--quads", "4", "--fail-if-slower", "5%", *commands)
    assert (ended, verdict in text) == (code, True)
    assert "(4 quads of turns, " in text
    assert said(capsys, "--quads", "4", *commands)[0] == 0  # without a gate


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a duel takes two commands, not 0"),
        (("--", "python", "train.py"), "a duel takes two commands, not 1"),
        (("--", "ls", "--", "python", "train.py"), "ls is not a command of this project's train.py"),
        (("--", "train.py", "rate=1", "--", "train.py", "rate=-1"), "B cannot train: there is no such rate"),
        (("--", "train.py", "rate=0", "--", "train.py", "rate=1"), "A broke off: it ended"),
        (("--fail-if-slower", "150%", "--", "train.py", "--", "train.py"), "--fail-if-slower 150% is not a share"),
        (("--quads", "5", "--", "train.py", "--", "train.py"), "5 is not an even number from 4 on"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, *arguments)
    assert code in (1, 2)
    assert message in text
    assert "Traceback" not in text


def test_what_quads_do_not_tell_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    class Restless(Made):
        def turn(self, seconds: float) -> Block | Failure:
            return Block(round(1e6 * self.random.lognormvariate(0, 2)), 1.0, 10)

    _, text = said(capsys, "--quads", "4", "--", "train.py", "rate=1", "--", "train.py", "rate=2", begin=Restless)
    assert "These turns cannot tell which is faster: the 4 quads differ too much" in text


def test_two_real_trainings_take_turns(sample_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [
        "train.py",
        "data.tiles_per_class=10",
        f"data.root={sample_root}",
        "data.batch_size=4",
        "trainer=cpu",
        NETWORK,
    ]
    code, text = said(capsys, "--seconds", "0.05", "--quads", "4", "--", *given, "--", *given, begin=Trainee)
    assert code == 0, text
    assert "(4 quads of turns" in text or "the 4 quads differ too much" in text  # as they may on a busy machine
