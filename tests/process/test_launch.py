"""What a process knows about how it was started, and which scripts it starts."""

import argparse
import os
import sys
from pathlib import Path

import pytest

from strobe.errors import ConfigError
from strobe.process import launch
from strobe.process.launch import command_of, positive_seconds, quieten_kineto, rank, started_by_torchrun


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 0),
        ({"LOCAL_RANK": "1"}, 1),
        ({"RANK": "5", "LOCAL_RANK": "1"}, 5),
        ({"RANK": "0", "LOCAL_RANK": "0"}, 0),
    ],
    ids=str,
)
def test_rank(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: int) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank() == expected


@pytest.mark.parametrize("text", ["0", "-1", "abc", "nan", "1e9"])
def test_what_is_no_length_of_time_is_told_in_a_sentence(text: str) -> None:
    assert positive_seconds("0.5") == 0.5
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{text} is not a number of seconds; give one above 0"):
        positive_seconds(text)


def test_only_torchrun_names_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert not started_by_torchrun()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun's own default
    assert started_by_torchrun()


@pytest.mark.parametrize(
    ("gpu", "before", "after"), [(False, None, "6"), (False, "1", "1"), (True, None, None), (True, "1", "1")]
)
def test_kineto_is_quiet_only_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpu: bool, before: str | None, after: str | None
) -> None:
    device = tmp_path / "nvidiactl"
    if gpu:
        device.touch()
    monkeypatch.setattr(launch, "Path", lambda _: device)
    monkeypatch.setenv("KINETO_LOG_LEVEL", before or "")
    if before is None:
        monkeypatch.delenv("KINETO_LOG_LEVEL")
    quieten_kineto()
    assert os.environ.get("KINETO_LOG_LEVEL") == after


def given(*words: str) -> argparse.Namespace:
    """As a command line names it."""
    return argparse.Namespace(module=False, script=words[0], arguments=list(words[1:]))


@pytest.mark.parametrize(
    "begins",
    ["", "#!/usr/bin/env python3\n", "#!/usr/bin/env -S uv run\n", "#!/bin/sh\n'''exec' ", "#!/home/sh/bin/python\n"],
)
def test_a_script_may_begin_as_it_likes(begins: str, tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text(f"{begins}import torch\n")
    assert command_of(given(str(script), "--lr", "1")) == [str(script), "--lr", "1"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("all.sh", "#!/bin/bash\npython train.py\n", "all.sh is not a Python script; give the one that it starts"),
        ("all", "#!/usr/bin/env bash\n", "all is not a Python script"),
        ("look.ipynb", '{"cells": [], "metadata": null}', "look.ipynb is a notebook; in a cell of it"),
        ("python3.11", None, "leave out python3.11: Strobe starts Python itself; begin with train.py"),
        ("none.py", None, "there is no file none.py"),
        ("python_train.py", None, "there is no file python_train.py"),
    ],
)
def test_what_python_cannot_run_is_refused(
    name: str, text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path(name).write_text(text)
    with pytest.raises(ConfigError) as refused:
        command_of(given(name, "-u", "train.py"))
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("python train.py --lr 1", "train.py --lr 1"),
        ("python -m package.train -m x", "-m package.train -m x"),
        ("{own} train.py", "train.py"),
        ("-m python train.py", "-m python train.py"),
        ("elsewhere/python train.py", "elsewhere/python train.py"),
    ],
)
def test_python_may_stand_before_its_script(
    command: str, runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    for name in ("train.py", "elsewhere/python"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch(mode=0o755)
    parser = launch.Parser()
    launch.script_arguments(parser)
    assert command_of(parser.parse_args(command.format(own=sys.executable).split())) == runs.split()


def test_a_program_is_no_script() -> None:
    with pytest.raises(ConfigError, match="is not a Python script"):
        command_of(given(sys.executable, "train.py"))
