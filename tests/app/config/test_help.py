"""``--help``: what each key is and means."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from strobe.app.config import help as help_text
from strobe.app.config.register import CONF, schemas
from strobe.errors import ConfigError
from support.places import ROOT
from support.refusals import refusal

GROUPS = {"data", "loader", "engine", "model", "profiler", "checkpoint", "sweep", "tune", "suite", "trainer", "logger"}


@pytest.mark.parametrize("kind", list(schemas()), ids=lambda kind: kind.__name__)
def test_each_key_has_a_meaning(kind: type) -> None:
    known = help_text.meanings(kind)
    assert {name for name in kind.__annotations__ if name not in known} - {"_target_"} <= GROUPS


@pytest.mark.parametrize(
    ("name", "asked", "lines"),
    [
        ("config", (), ["  model       resnet18", "  sweep.repeats=1", "  seed=42", "  test=true"]),
        ("config", ("data",), ["data=cifar10  CIFAR-10: 60,000 photos", "  data.batch_size=32  "]),
        ("config", ("trainer",), ["trainer=gpu", "  trainer.max_epochs=5 ", "  trainer.accelerator=gpu"]),
        ("config", ("checkpoint",), ["  checkpoint.every_n_steps=null  "]),
        ("tune", (), ["  tune.budget=10m", "strobe tune"]),
        ("bench", ("suite",), ["suite=crop", "  suite.decoders=null"]),
    ],
)
def test_help_lists_groups_choices_and_keys(name: str, asked: tuple[str, ...], lines: list[str]) -> None:
    said = help_text.text(name, asked)
    for line in lines:
        assert line in said
    assert "$" not in said.replace("${oc.env", "")


@pytest.mark.parametrize("group", [path.name for path in Path(CONF).iterdir() if path.is_dir()])
def test_each_choice_says_what_it_is(group: str) -> None:
    said = help_text.text("bench" if group == "suite" else "config", [group])
    heads = re.findall(rf"^{group}=\S+ *(.*)$", said, re.MULTILINE)
    assert heads
    assert all(heads)


@pytest.mark.parametrize("group", [path.name for path in Path(CONF).iterdir() if path.is_dir()])
def test_each_key_of_each_choice_says_what_it_is(group: str) -> None:
    said = help_text.text("bench" if group == "suite" else "config", [group])
    keys = dict(re.findall(rf"^  {group}\.(\w+)=\S* *(.*)$", said, re.MULTILINE))
    assert [key for key, meaning in keys.items() if not meaning] == []
    assert keys or group == "experiment"
    assert not keys.keys() & set(help_text.FIXED)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("seed", "  seed=42  of weights, order of images, and augmentation; at least 0 and at most 4294967295"),
        ("callbacks", "  callbacks={}  more Lightning callbacks, each with its _target_"),
        ("model.lr", "  model.lr=0.001  learning rate; greater than 0"),
        ("checkpoint.monitor", "  checkpoint.monitor=val/accuracy  the metric that says which one is best"),
    ],
)
def test_a_key_gets_its_own_line(asked: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    said = re.sub(r"(?<=\S) {2,}", "  ", help_text.text("config", [asked]))
    assert said.startswith(line)
    assert "\n  " not in said


def test_of_a_training_no_suite_is_listed() -> None:
    assert "suite" not in help_text.text("config")


def test_a_group_that_is_not_there() -> None:
    said = refusal(lambda: help_text.text("config", ["nope"]), ConfigError)
    assert said.startswith("--help nope: there is no such group or key; give one of data, ")
    assert {"checkpoint", "sweep"} <= set(said.rpartition("one of ")[2].split(", "))


def test_who_reads_only_its_beginning_sees_no_traceback() -> None:
    asked = f"{sys.executable} {ROOT / 'train.py'} --help | head -n 1"
    ended = subprocess.run(asked, shell=True, capture_output=True, text=True, check=False)
    assert ended.stdout.startswith("Trains an image classifier")
    assert not ended.stderr
