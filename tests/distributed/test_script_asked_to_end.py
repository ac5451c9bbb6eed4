"""A script's training of two ranks that is asked to end: all end after the same batch, and its record is whole."""

import os
import signal
from pathlib import Path

import pytest

from strobe.process.signals import is_of_handler
from strobe.records.joining import is_whole, last_steps
from strobe.records.run import read_summary
from support.places import ROOT
from support.processes import begin, is_running, wait_for

SCRIPT = str(Path(__file__).with_name("ranks.py"))
HEARD = {signal.SIGTERM: "It was ended by SIGTERM", signal.SIGHUP: "It was ended by SIGHUP"}


def asked(folder: Path, fault: str, code: int) -> str:
    process = begin(SCRIPT, cwd=folder, PYTHONPATH=str(ROOT / "src"), FAULT=fault)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == code, said
    wait_for(lambda: not is_running(process.pid), 30)
    assert "Strobe stopped" not in said
    assert is_whole(folder / "here")
    return said


@pytest.mark.parametrize(
    ("number", "rank"),
    [
        (signal.SIGTERM, 1),
        pytest.param(signal.SIGTERM, 0, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 0, marks=pytest.mark.slow),
    ],
)
def test_both_end_after_the_same_batch_as_lightning_ends_one(tmp_path: Path, number: signal.Signals, rank: int) -> None:
    said = asked(tmp_path, f"{number.name} {rank}", 129 if number == signal.SIGHUP else 0)
    summary = read_summary(tmp_path / "here" / "summary.json")
    assert summary["status"] == "interrupted"
    assert summary["error"]["message"].startswith(HEARD[number])
    assert said.count("the script's own handler heard 15") == (number == signal.SIGTERM)  # on the rank that got it
    first, second = last_steps(tmp_path / "here").values()
    assert first == second
    assert not (tmp_path / "here" / "ranks" / "1-error.json").exists()


@pytest.mark.slow
def test_where_one_hangs_both_end_by_themselves(tmp_path: Path) -> None:
    asked(tmp_path, "SIGTERM and hang 1", 1)  # by its own error, since the other rank has gone
    assert read_summary(tmp_path / "here" / "summary.json")["status"] == "interrupted"


def test_an_error_that_a_handler_raises_is_known() -> None:
    def handler(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TimeoutError) as its:
            os.kill(os.getpid(), signal.SIGALRM)
        with pytest.raises(ZeroDivisionError) as other:
            print(1 / 0)
        assert (is_of_handler(its.value), is_of_handler(other.value)) == (True, False)
    finally:
        signal.signal(signal.SIGALRM, before)
