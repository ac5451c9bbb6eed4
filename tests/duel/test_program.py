"""Which Python a command runs, and with which program."""

import os
import sys
from pathlib import Path

import pytest

from strobe.duel.program import Program, program_of
from strobe.errors import ConfigError
from support.refusals import refusal

HERE = {"PATH": os.defpath, "A": "0"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with scripts, and one beside it, in which the command is given, with a Python of its own."""
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "venv").mkdir(parents=True)
    there.mkdir()
    (here / "venv" / "python3").symlink_to(sys.executable)
    for name, text in (
        ("train.py", ""),
        ("trains", "#!/usr/bin/env python3\n"),
        ("unbuffered", "#!/usr/bin/env -S python3 -u\n"),
        ("shell", "#!/bin/sh\n"),
    ):
        (there / name).write_text(text)
        (there / name).chmod(0o755)
    monkeypatch.chdir(here)
    return there


@pytest.mark.parametrize(
    ("command", "interpreter", "words"),
    [
        ("python train.py --lr 1", [sys.executable], ["train.py", "--lr", "1"]),
        ("python3 -u -W ignore -m a.b x", [sys.executable, "-u", "-W", "ignore"], ["-m", "a.b", "x"]),
        ("python -ma.b conf.yaml", [sys.executable], ["-m", "a.b", "conf.yaml"]),
        ("python -um a.b x", [sys.executable, "-u"], ["-m", "a.b", "x"]),
        ("venv/python3 train.py", ["{here}/venv/python3"], ["train.py"]),
        ("train.py x", [sys.executable], ["{there}/train.py", "x"]),
        ("./trains x", [sys.executable], ["{there}/trains", "x"]),
        ("./unbuffered", [sys.executable, "-u"], ["{there}/unbuffered"]),
    ],
)
def test_a_command_is_a_python_with_a_program(
    command: str, interpreter: list[str], words: list[str], folder: Path
) -> None:
    found = program_of(command.split(), HERE, folder)
    expected = [[one.format(here=Path.cwd(), there=folder) for one in each] for each in (interpreter, words)]
    assert found == Program(*expected, HERE)


@pytest.mark.parametrize("prefix", [[], ["env"]])
def test_a_command_may_begin_with_variables(prefix: list[str], folder: Path) -> None:
    found = program_of([*prefix, "A=1", "B=x=y", "python", "train.py", "C=2"], HERE, folder)
    assert found.variables == {**HERE, "A": "1", "B": "x=y"}
    assert found.words == ["train.py", "C=2"]


def test_a_console_script_in_a_long_path_names_its_python_in_its_second_line(folder: Path) -> None:
    python = folder / "python3"
    python.symlink_to(sys.executable)
    script = folder / "console"
    script.write_text(f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\nimport sys\n")
    script.chmod(0o755)
    assert program_of(["console"], {"PATH": str(folder)}, folder).interpreter == [str(python)]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "there is no command; give a command such as python train.py"),
        ("A=1", "there is no command"),
        ("python", "python is given no script"),
        ("python -m", "python is given no script"),
        ("python -c pass", "python -c runs no script"),
        ("python -uc pass", "python -uc runs no script"),
        ("python -mtorch.distributed.run train.py", "torch.distributed.run starts several processes"),
        ("python gone.py", "there is no gone.py in "),
        ("gone/python train.py", "gone/python cannot be found"),
        ("gone", "gone cannot be found"),
        ("./shell", "./shell is not a Python program"),
        ("ls", "ls is not a Python program"),
        ("torchrun train.py", "torchrun starts several processes"),
        ("python -m torch.distributed.run train.py", "torch.distributed.run starts several processes"),
    ],
)
def test_what_is_no_program_is_refused_in_one_sentence(command: str, message: str, folder: Path) -> None:
    assert message in refusal(lambda: program_of(command.split(), HERE, folder), ConfigError)
