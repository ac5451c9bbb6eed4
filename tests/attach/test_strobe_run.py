"""``strobe run``: a script as it is, through Lightning's entry points."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from strobe import Strobe, run
from strobe.attach import entry
from support.places import ROOT

SCRIPT = """
import sys, time
import torch
from {package} import Trainer
from {package}.demos.boring_classes import BoringModel

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(32)

quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
for _ in range(2):
    trainer = Trainer(accelerator="cpu", max_epochs=1, limit_val_batches=0, **quiet)
    trainer.fit(BoringModel(), torch.utils.data.DataLoader(Slow(), batch_size=2))
print(sys.argv[1:], [name in sys.modules for name in ("lightning", "pytorch_lightning")])
sys.exit(7)
"""


def groups() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    return found


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This tree's entry points, as pip installs them, whatever is installed here."""
    info = tmp_path / "site" / "lightning_strobe-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lightning-strobe\nVersion: 0.1.0\n")
    lines = [line for group, names in groups().items() for line in (f"[{group}]", *map(" = ".join, names.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(info.parent), str(ROOT / "src")]))
    monkeypatch.syspath_prepend(info.parent)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_a_script_of_either_lightning_keeps_its_output_arguments_and_exit_code(package: str, tmp_path: Path) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    (tmp_path / "train.py").write_text(SCRIPT.format(package=package))
    command = [sys.executable, "-m", "strobe.run", "--out", "here", "train.py", "--out", "mine", "--trace"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 7, done.stderr
    used = [package != "pytorch_lightning", package == "pytorch_lightning"]
    assert done.stdout == f"{['--out', 'mine', '--trace']} {used}\n"
    for name in ("here", "here-2"):  # a record of each fit
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert {"loader", "shared_machine"} >= {summary["findings"][0]["cause"]}
        assert summary["script"] == "python train.py --out mine --trace"
        assert summary["choices"] == {"model": "BoringModel"}
    assert done.stderr.count("waits") >= 2


def test_it_becomes_the_script(monkeypatch: pytest.MonkeyPatch, installed: None) -> None:
    became: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *given: became.extend(given))
    run.main(["--trace", "-m", "package.train", "-m", "x"])
    path, line, environment = became
    assert [path, *line] == [sys.executable, sys.executable, "-m", "package.train", "-m", "x"]
    assert (environment["STROBE"], environment["STROBE_TRACE"], environment["STROBE_OUT"]) == ("1", "1", "")


def test_an_installation_without_entry_points_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "entry_points", lambda **_: [])
    with pytest.raises(SystemExit, match="Install Strobe again"):
        run.main(["train.py"])


@pytest.mark.parametrize("group", entry.GROUPS)
def test_lightning_is_given_a_callback_only_where_it_is_wanted(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = EntryPoint("strobe", groups()[group]["strobe"], group).load()
    monkeypatch.delenv("STROBE", raising=False)
    assert factory() == []
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


@pytest.mark.filterwarnings("ignore")  # jsonargparse's own
def test_lightning_cli_takes_it_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jsonargparse", reason="intended: LightningCLI needs it, nothing else here does")
    from lightning.pytorch.cli import LightningCLI
    from lightning.pytorch.demos.boring_classes import BoringModel

    monkeypatch.chdir(tmp_path)
    names = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    quiet = [f"--trainer.{name}=false" for name in names]
    taken = ["--trainer.callbacks=strobe.Strobe", "--trainer.callbacks.directory=here"]
    given = [
        "train.py",
        "fit",
        "--seed_everything=1",
        "--trainer.max_steps=2",
        "--trainer.accelerator=cpu",
        *quiet,
        *taken,
    ]
    monkeypatch.setattr(sys, "argv", given)
    LightningCLI(BoringModel)
    assert json.loads((tmp_path / "here" / "summary.json").read_text())["status"] == "completed"
