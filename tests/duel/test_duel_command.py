"""``strobe duel``: what it says, its exit codes, and its refusals; trainings are made up, but for one."""

from pathlib import Path

import pytest

from strobe.measure import contention
from strobe.measure.timing import Block
from strobe.process.fork import Failure
from support.duels import Made, files, said
from support.places import ROOT
from support.suite_parts import NETWORK


@pytest.mark.parametrize(
    ("theirs", "ours", "code", "verdict", "quads"),
    [
        (1.0, 1.5, 0, "B is faster", 4),
        (1.0, 0.5, 3, "B is slower", 2),  # which half of them tell
        (1.0, 0.96, 4, "cannot tell", 4),
    ],
)
def test_the_gate_decides(
    theirs: float, ours: float, code: int, verdict: str, *, quads: int, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = ("--", "python", "train.py", f"rate={theirs}", "--", "python3.11", "./train.py", f"rate={ours}")
    ended, text = said(capsys, "--quads", "4", "--fail-if-slower", "5%", *commands, begin=Made)
    assert (ended, verdict in text) == (code, True)
    assert f"({quads} quads of turns, 96% interval)" in text
    assert "samples/s, B " in text
    assert "│" not in text, "nobody knows the phases"
    assert said(capsys, "--quads", "4", *commands, begin=Made)[0] == 0  # without a gate


def test_phases_stand_side_by_side_where_they_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = said(capsys, "--quads", "4", "--", "rate=1", "timed", "--", "rate=2", "timed", begin=Made)
    rows = [line.replace("│", " ").split() for line in text.splitlines() if "│" in line]
    assert rows == [
        ["data", "wait", "4.0", "4.0"],
        ["forward", "1.0", "0.50"],
        ["in", "all", "5.0", "4.5"],
        ["samples", "8", "8"],
    ]
    _, text = said(capsys, "--quads", "4", "--", "rate=1", "--", "rate=2", "timed", begin=Made)
    assert ["forward", "0.50"] in [line.replace("│", " ").split() for line in text.splitlines()]


def test_the_rates_are_those_of_the_table_and_a_busy_machine_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(contention, "between", lambda *_: {"others": 0.81, "stolen": None})
    _, text = said(capsys, "--quads", "4", "--", "rate=1", "timed", "--", "rate=2", "timed", begin=Made)
    assert "A 1,600 samples/s, B 1,778 samples/s" in text
    assert "Others took 81% of the cores meanwhile; on a quiet machine the interval is narrower." in text
    monkeypatch.setattr(contention, "between", lambda *_: {"others": 0.02, "stolen": 0.01})
    _, text = said(capsys, "--quads", "4", "--", "rate=1", "--", "rate=2", begin=Made)
    assert "Others" not in text


def test_steps_are_compared_where_a_side_does_not_show_the_size_of_its_batches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, text = said(capsys, "--quads", "4", "--", "rate=1", "--", "rate=2", "unsized", begin=Made)
    assert "The batches of B do not show how many samples they hold, so steps/s are compared." in text
    assert "steps/s, B " in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a duel takes two commands, not 0"),
        (("--", "python", "train.py"), "a duel takes two commands, not 1"),
        (("python", "train.py"), "python has no place here; give a command as in: strobe duel -- python train.py"),
        (("--secnds", "3", "--", "a", "--", "b"), "--secnds is not an option of strobe duel; did you mean --seconds?"),
        (("--", "train.py", "rate=1", "--", "train.py", "rate=-1"), "B cannot train: there is no such rate"),
        (("--", "train.py", "rate=0", "--", "train.py", "rate=1"), "A broke off: it ended"),
        (("--fail-if-slower", "150%", "--", "rate=1", "--", "rate=1"), "--fail-if-slower 150% is not a share"),
        (("--quads", "5", "--", "train.py", "--", "train.py"), "5 is not an even number from 4 on"),
        (("--quads", "few", "--", "train.py", "--", "train.py"), "few is not an even number from 4 on"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, *arguments, begin=Made)
    assert code == (1 if "rate=-1" in arguments or "rate=0" in arguments else 2)
    assert message in text
    assert "Traceback" not in text


def test_what_quads_do_not_tell_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    class Restless(Made):
        def turn(self, seconds: float) -> Block | Failure:
            return Block(round(1e6 * self.random.lognormvariate(0, 2)), 1.0, 10)

    _, text = said(capsys, "--quads", "4", "--", "train.py", "rate=1", "--", "train.py", "rate=2", begin=Restless)
    assert "These turns cannot tell which is faster: the turns differ too much; try --quads 8." in text


def test_a_command_that_is_none_is_told_with_its_side(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "--", "python", str(ROOT / "train.py"), "--", "ls")
    assert (code, text) == (2, "B: ls is not a Python program; give a command such as python train.py ARGUMENTS\n")


def test_the_applications_trainings_take_turns_and_leave_nothing(
    sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["python", str(ROOT / "train.py"), "data.tiles_per_class=10", f"data.root={sample_root}"]
    given += ["data.batch_size=4", "trainer=cpu", NETWORK]
    code, text = said(capsys, "--seconds", "0.05", "--quads", "4", "--", *given, "--", *given)
    assert code == 0, text
    assert "(4 quads of turns" in text or "the turns differ too much" in text  # as they may on a busy machine
    assert "samples/s" in text
    assert files(tmp_path) == []
