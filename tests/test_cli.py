"""``strobe X`` is ``python -m strobe.X``."""

import re
import runpy
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from strobe import cli
from strobe.app import needed
from support.places import ROOT


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["strobe", *arguments])
    monkeypatch.setattr(sys, "path", sys.path[:])
    cli.main()


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_is_a_module_that_is_run_as_such(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    run: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(runpy, "run_module", lambda module, **_: run.append((module, sys.argv[1:])))
    called(monkeypatch, name, "--help", "x=1")
    assert run == [(f"strobe.{name}", ["--help", "x=1"])]
    found = find_spec(f"strobe.{name}")
    assert found is not None
    assert not found.submodule_search_locations or find_spec(f"strobe.{name}.__main__")


def test_its_exit_code_and_arguments_are_the_commands_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "strobe.compare.__main__", raising=False)  # runpy warns of one that is imported
    with pytest.raises(SystemExit) as ended:
        called(monkeypatch, "compare", "--help")
    assert ended.value.code == 0
    assert "usage: python -m strobe.compare" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_names_each_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    called(monkeypatch, *arguments)
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in cli.COMMANDS)


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="strobe look is not a command; give one of run, probe, tune, duel, view"):
        called(monkeypatch, "look")


# Sends a signal to the command that this process becomes, when it imports a library.
IMPORTING = """
import os, runpy, sys
class Finder:
    def find_spec(name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), int(sys.argv[2]))
sys.meta_path.insert(0, Finder)
sys.path.insert(0, "src")
program = sys.argv[3]
(runpy.run_path if program.endswith(".py") else runpy.run_module)(program, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("number", "library", "program"),
    [
        (signal.SIGINT, "hydra", "train.py"),
        (signal.SIGTERM, "hydra", "strobe.bench"),
        (signal.SIGHUP, "argparse", "strobe.clean"),
    ],
)
def test_a_request_to_end_while_libraries_are_imported_leaves_no_traceback(
    number: signal.Signals, library: str, program: str
) -> None:
    told = subprocess.run(
        [sys.executable, "-c", IMPORTING, library, str(int(number)), program],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert (told.returncode, told.stdout, told.stderr) == (128 + number, b"", b"")


def test_each_command_listens_before_it_imports_libraries() -> None:
    for name in cli.COMMANDS:
        found = find_spec(
            f"strobe.{name}.__main__" if find_spec(f"strobe.{name}").submodule_search_locations else f"strobe.{name}"
        )
        assert found is not None
        assert found.origin is not None
        imports = re.findall(r"^(?:from|import) (\S+)|^    (listen)\(\)", Path(found.origin).read_text(), re.MULTILINE)
        assert imports[:2] == [("strobe.process.signals", ""), ("", "listen")], name


def test_what_the_application_needs_is_looked_for() -> None:
    """In the extra ``app``, in which libraries have the names of their distributions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {re.split("[<>=]", text)[0] for text in project["optional-dependencies"]["app"] + project["dependencies"]}
    provided = packages_distributions()
    looked_for = {name.lower().replace("_", "-") for package in needed.PACKAGES for name in provided[package]}
    assert asked <= looked_for


def test_a_command_of_the_application_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "strobe.app.needed")
    monkeypatch.setitem(sys.modules, "rasterio", None)
    with pytest.raises(SystemExit, match=r"not installed \(rasterio\), and a checkout .* pip install -e '\.\[app\]'"):
        called(monkeypatch, "tune")
