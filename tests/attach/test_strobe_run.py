"""``strobe run``: a script as it is, through Lightning's entry points."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from strobe import Strobe, run
from strobe.attach import driver, entry
from strobe.errors import StrobeError
from support.entry_points import groups, install
from support.places import ROOT


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This tree's entry points, as pip installs them, whatever is installed here."""
    install(tmp_path / "site", monkeypatch)
    monkeypatch.chdir(tmp_path)


def test_it_becomes_the_script(monkeypatch: pytest.MonkeyPatch, installed: None) -> None:
    became: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *given: became.extend(given))
    run.main(["--trace", "-m", "package.train", "-m", "x"])
    path, line, environment = became
    assert [path, *line] == [sys.executable, sys.executable, driver.__file__, "-m", "package.train", "-m", "x"]
    assert (environment["STROBE"], environment["STROBE_TRACE"]) == ("1", "1")


@pytest.mark.parametrize(
    ("begun", "end", "code"), [(False, "sys.exit(3)", 3), (True, "", 0), (False, "", 0), (False, "1 / 0", 1)]
)
def test_a_script_that_trains_nothing_is_told_so_at_its_end(
    begun: bool, end: str, code: int, installed: None, tmp_path: Path
) -> None:
    """What it prints, its traceback and its exit code are its own; a process that it starts may begin a record."""
    lines = ["import subprocess, sys", "print(sys.argv, sys.orig_argv[1:], __file__)"]
    if begun:
        place = "from strobe.attach.place import new_directory; new_directory(None, 'x')"
        lines.append(f'subprocess.run([sys.executable, "-c", "{place}"], check=True)')
    (tmp_path / "train.py").write_text("\n".join([*lines, end]))
    line = [sys.executable, "-m", "strobe.run", "train.py", "--lr", "1"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout == f"['train.py', '--lr', '1'] ['train.py', '--lr', '1'] {tmp_path / 'train.py'}\n"
    said = done.stderr.splitlines()
    assert said[-1:] == ([] if begun else [driver.NOTHING + driver.OTHERWISE * (code == 0)])
    assert done.stderr.count("  File ") == (end == "1 / 0")


@pytest.mark.parametrize("words", [["-m", "missing"], ["-m", "os.missing"], ["-m", "package"], ["package"]])
def test_a_module_that_is_missing_is_told_as_python_tells_it(words: list[str], installed: None, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    plain, under = (
        subprocess.run([sys.executable, *line, *words], capture_output=True, text=True, check=False)
        for line in ((), ("-m", "strobe.run"))
    )
    assert plain.returncode == under.returncode == 1
    assert under.stderr.splitlines()[:-1] == plain.stderr.splitlines()[-1:]
    assert "Traceback" not in under.stderr


def test_a_record_goes_where_the_command_was_typed(installed: None, tmp_path: Path) -> None:
    place = "from strobe.attach.place import new_directory; new_directory(None)"
    (tmp_path / "train.py").write_text(f"import os, tempfile; os.chdir(tempfile.gettempdir()); {place}")
    subprocess.run([sys.executable, "-m", "strobe.run", "train.py"], capture_output=True, check=True)
    assert [path.parent.name for path in tmp_path.glob("strobe-runs/*/*-train/steps.csv")]


def test_a_folder_for_the_record_that_is_a_file_is_refused_before_the_script_runs(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").touch()
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("it runs"))
    with pytest.raises(SystemExit, match="2"):
        run.main(["--out", str(tmp_path / "taken" / "here"), "train.py"])
    assert "taken/here cannot be a folder, because" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["torchrun"], ["-m", "torch.distributed.run"]])
def test_a_launcher_is_no_script(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run.main([*words, "--nproc-per-node", "2", "train.py"])
    assert f"set STROBE=1 for {words[-1]}" in capsys.readouterr().err


def test_an_installation_without_entry_points_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "entry_points", lambda **_: [])
    with pytest.raises(StrobeError, match="install Strobe again"):
        run.main(["-m", "train"])


@pytest.mark.parametrize("group", groups())
def test_lightning_and_fabric_are_given_nothing_where_nothing_is_wanted(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STROBE", raising=False)
    assert EntryPoint("strobe", groups()[group]["strobe"], group).load()() == []


@pytest.mark.parametrize("group", entry.GROUPS)
def test_lightning_is_given_a_callback_where_it_is_wanted(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = EntryPoint("strobe", groups()[group]["strobe"], group).load()
    monkeypatch.setenv("STROBE", "1")
    monkeypatch.setenv("STROBE_OUT", "here")
    (strobe,) = factory()
    assert isinstance(strobe, Strobe)
    assert (strobe.directory, strobe.trace) == (Path("here"), None)


def test_importing_strobe_takes_neither_torch_nor_lightning() -> None:
    code = "import strobe, strobe.attach.entry as e, sys; e.callbacks(); print({'torch', 'lightning'} & {*sys.modules})"
    assert (
        subprocess.check_output([sys.executable, "-c", code], text=True, env=os.environ | {"STROBE": "0"}) == "set()\n"
    )


CLI = """
from {package}.cli import LightningCLI
from {package}.demos.boring_classes import BoringModel
LightningCLI(BoringModel)
"""
FIRST = """
from strobe import Strobe
from pytorch_lightning import Trainer
from pytorch_lightning.demos.boring_classes import BoringModel
quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
Trainer(max_steps=2, accelerator="cpu", callbacks=Strobe("mine"), **quiet).fit(BoringModel())
"""
YAML = """
seed_everything: 1
trainer:
  max_steps: 2
  accelerator: cpu
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
"""


@pytest.mark.parametrize(("before", "package"), [("", "lightning.pytorch"), (FIRST, "pytorch_lightning")])
def test_lightning_cli_takes_it_from_the_yaml_of_the_page(before: str, package: str, tmp_path: Path) -> None:
    """Also where Strobe was imported before this Lightning, and has taken the other one."""
    if find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    page = (ROOT / "docs" / "attach.md").read_text()
    [snippet] = re.findall(r"^    trainer:\n((?:      .*\n)+)", page, re.MULTILINE)
    (tmp_path / "train.yaml").write_text(YAML + re.sub("^    ", "", snippet, flags=re.MULTILINE))
    (tmp_path / "train.py").write_text(before + CLI.format(package=package))
    line = [sys.executable, "train.py", "fit", "--config=train.yaml"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("summary.json")]
    assert [record["status"] for record in records] == ["completed"] * (1 + bool(before))
