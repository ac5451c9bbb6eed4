"""``strobe X`` is ``python -m strobe.X``."""

import os
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

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}


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
    assert "usage: strobe compare" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_names_each_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    called(monkeypatch, *arguments)
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in cli.COMMANDS)


def test_its_version_is_that_of_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called(monkeypatch, "--version")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"{declared['name']} {declared['version']}\n"


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        called(monkeypatch, "look")
    told = "strobe look is not a command; give one of run, probe, tune, duel, view"
    assert capsys.readouterr().err.startswith(told)


WRONG = {  # a command line for each command, and what is said of it
    "run": (["none.py"], "there is no file none.py"),
    "probe": (["--secnds", "3", "none.py"], "--secnds is not an option of strobe probe; did you mean --seconds?"),
    "tune": (["none.py"], "there is no file none.py"),
    "duel": (["--", "python", "none.py"], "a duel takes two commands, not 1"),
    "view": (["nowhere"], "nowhere does not exist"),
    "report": (["nowhere"], "nowhere is not a directory"),
    "compare": (["nowhere"], "nowhere is not a directory"),
    "clean": (["--remove"], "--remove needs an age"),
    "doctor": (["--hepl"], "--hepl is not an option of strobe doctor; did you mean --help?"),
    "ceilings": (["data.batchsize=3"], "data.batchsize is not a key"),
    "bench": (["suite=moon"], "suite=moon is not a choice"),
    "pack": (["--shards", "out", "data.batchsize=3"], "data.batchsize is not a key"),
    "native": (["--nothing"], "--nothing is not an option of strobe native; --help lists the options"),
}
BROKEN = ("view", "report", "compare")  # of a folder whose record is damaged


@pytest.mark.parametrize("name", [*cli.COMMANDS, "train.py"])
def test_a_wrong_command_line_exits_with_2_and_one_sentence(name: str, tmp_path: Path) -> None:
    given, said = WRONG.get(name, (["data.batchsize=3"], "data.batchsize is not a key"))
    line = [str(ROOT / "train.py")] if name == "train.py" else ["-m", f"strobe.{name}"]
    done = subprocess.run(
        [sys.executable, *line, *given], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", BROKEN)
def test_what_failed_exits_with_1_and_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{")
    line = [sys.executable, "-m", f"strobe.{name}", "run"]
    done = subprocess.run(line, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr


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


def test_strobe_listens_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for handler in (signal.SIG_DFL, signal.default_int_handler):
        assert signal.signal(signal.SIGINT, handler)
        called(monkeypatch, "--help")
        assert signal.getsignal(signal.SIGINT) not in (signal.SIG_DFL, signal.default_int_handler)
    assert re.findall(r"^(?:from|import) (\S+)", Path(cli.__file__).read_text(), re.MULTILINE)[0].endswith("signals")


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
