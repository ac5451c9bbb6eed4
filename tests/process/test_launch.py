"""What is given to strobe run, probe and tune as a script, and is none."""

import argparse
import sys
from pathlib import Path

import pytest

from strobe.errors import ConfigError
from strobe.process.launch import command_of

TRAINS = "import torch\n"


def given(*words: str) -> argparse.Namespace:
    """As a command line names it."""
    return argparse.Namespace(module=False, script=words[0], arguments=list(words[1:]))


@pytest.mark.parametrize(
    "begins", ["", "#!/usr/bin/env python3\n", "#!/usr/bin/env -S uv run\n", "#!/bin/sh\n'''exec' "]
)
def test_a_script_may_begin_as_it_likes(begins: str, tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text(begins + TRAINS)
    assert command_of(given(str(script), "--lr", "1")) == [str(script), "--lr", "1"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("all.sh", "#!/bin/bash\npython train.py\n", "all.sh is not a Python script; give the one that it starts"),
        ("all", "#!/usr/bin/env bash\n", "all is not a Python script"),
        ("look.ipynb", '{"cells": [], "metadata": null}', "look.ipynb is a notebook; in a cell of it"),
        ("python3.11", None, "leave out python3.11: Strobe starts Python itself; begin with train.py"),
        ("none.py", None, "there is no file none.py"),
    ],
)
def test_what_python_cannot_run_is_refused(
    name: str, text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path(name).write_text(text)
    with pytest.raises(ConfigError) as refused:
        command_of(given(name, "train.py"))
    assert str(refused.value).startswith(said)


def test_a_program_is_no_script() -> None:
    with pytest.raises(ConfigError, match="is not a Python script"):
        command_of(given(sys.executable, "train.py"))
