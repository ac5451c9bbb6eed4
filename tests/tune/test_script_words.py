"""Which words name a script, and which are overrides of ``train.py``."""

from pathlib import Path

import pytest

from strobe.errors import ConfigError
from strobe.tune.script import Script, is_script, seconds, without_option
from support.places import ROOT
from support.refusals import refusal

APPLICATION = ROOT / "train.py"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("fit.py --epochs 3", True),
        ("--budget 3m --over workers fit.py data=x", True),
        ("--patch a.py fit.py", True),
        ("-m package.train", True),
        ("--seconds 1 -m train", True),
        ("--secnds 3 fit.py", True),  # which has no such option
        ("data=eurosat", False),
        ("data=eurosat fit.py", False),
        ("data.root=fit.py", False),
        ("-m data=eurosat,cifar10", False),
        ("--help", False),
        ("", False),
        (str(APPLICATION), False),
    ],
)
def test_a_script_is_told_from_overrides(words: str, wanted: bool) -> None:
    assert is_script(words.split(), APPLICATION) == wanted


def test_it_has_a_line_and_a_name() -> None:
    script = Script(("examples/fit it.py", "--lr", "0.1"))
    assert (script.line, script.name) == ("python 'examples/fit it.py' --lr 0.1", "fit-it")
    assert Script(("-m", "package.train")).name == "package.train"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--budget 3m fit.py", "fit.py"),
        ("--over workers --budget 3m fit.py --budget 9", "--over workers fit.py --budget 9"),
        ("fit.py --budget 9", "fit.py --budget 9"),
    ],
)
def test_an_option_is_taken_out_before_the_script_only(words: str, wanted: str) -> None:
    assert without_option(words.split(), "--budget") == wanted.split()


def test_an_edited_script_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    path = tmp_path / "package" / "train.py"
    path.touch()
    before = Script(("-m", "package.train")).source
    assert before == Script(("package/train.py", "--lr", "1")).source != Script(("-m", "installed")).source
    path.write_text("lr = 2")
    assert Script(("-m", "package.train")).source != before


@pytest.mark.parametrize(
    ("given", "wanted"), [("120s", 120), ("2m", 120), ("1h", 3600), ("90", 90), (" 1.5 m ", 90), ("0.5s", 0.5)]
)
def test_a_budget_is_a_length_of_time(given: str, wanted: float) -> None:
    assert seconds(given, "--budget ") == wanted


@pytest.mark.parametrize("given", ["", "soon", "5 days", "-3s", "0", "0s", "1e3", "s", "1..2m"])
def test_another_budget_is_refused(given: str) -> None:
    text = refusal(lambda: seconds(given, "tune.budget="), ConfigError)
    assert all(part in text for part in (f"tune.budget={given}", "tune.budget=120s"))


def test_this_file_is_a_script() -> None:
    assert is_script([str(Path(__file__))], APPLICATION)
