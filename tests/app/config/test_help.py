"""``--help``: what each key is and means."""

import re
from pathlib import Path

import pytest

from strobe.app.config import help as help_text
from strobe.app.config.register import CONF, schemas
from strobe.errors import ConfigError
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
        ("tune", (), ["  tune.budget=10m", "python -m strobe.tune"]),
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


def test_each_argument_of_the_trainer_says_what_it_is() -> None:
    keys = re.findall(r"^  trainer\.\S+ *(.*)$", help_text.text("config", ["trainer"]), re.MULTILINE)
    assert all(keys)


def test_of_a_training_no_suite_is_listed() -> None:
    assert "suite" not in help_text.text("config")


def test_a_group_that_is_not_there() -> None:
    assert "--help nope: there is no such group; give one of data" in refusal(
        lambda: help_text.text("config", ["nope"]), ConfigError
    )
