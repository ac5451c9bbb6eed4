"""The distribution in somebody else's environment, which has one Lightning, and nothing of the application's."""

import json
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.bare import built, requirements, with_network, without_network
from support.places import ROOT

SCRIPT = """
import sys, time
import torch
from strobe import Strobe
from {package} import LightningModule, Trainer

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(32)

quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
for callbacks in [], [Strobe("mine", trace=True)]:
    trainer = Trainer(accelerator="cpu", max_epochs=1, callbacks=callbacks, **quiet)
    trainer.fit(Model(), torch.utils.data.DataLoader(Slow(), batch_size=2))
print(sys.argv[1:])
sys.exit(7)
"""
PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


def test_it_asks_for_little(wheel: Path) -> None:
    assert {one.name for one in requirements(wheel)} == {"jinja2", "numpy", "rich", "torch"}


def attaches(python: Path, lightning: str, folder: Path) -> None:
    """A script leaves its records by both doors, with a trace; its output, arguments and exit code are its own."""

    def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [python, "-m", f"strobe.{module}", *arguments]
        environment = {"PATH": os.environ["PATH"]}  # without PYTHONPATH
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)

    (folder / "train.py").write_text(SCRIPT.format(package=PACKAGES[lightning]))
    done = run("run", "--out", "here", "train.py", "--out", "other", "--trace")
    assert (done.returncode, done.stdout) == (7, "['--out', 'other', '--trace']\n"), done.stderr
    assert "Strobe stopped" not in done.stderr
    assert done.stderr.count("waits") >= 2
    for name in ("here", "mine"):
        summary = json.loads((folder / name / "summary.json").read_text())
        assert {"loader", "shared_machine"} >= {summary["findings"][0]["cause"]}
        assert summary["script"] == "python train.py --out other --trace"
        assert summary["choices"] == {"model": "Model"}
    assert (folder / "mine" / "tables" / "operators_by_cpu_time.csv").read_text().count("\n") > 5
    assert summary["traces"]
    page = folder / "here" / "report.html"
    page.unlink()
    again = run("report", "here")
    assert (again.returncode, page.is_file()) == (0, True), again.stderr
    refused = run("tune")
    assert re.fullmatch(r"This command needs .* pip install 'lightning-strobe\[app\]'\n", refused.stderr)
    assert refused.returncode == 1


@pytest.mark.parametrize("lightning", PACKAGES)
def test_a_script_is_attached_to_where_nothing_else_is_installed(lightning: str, wheel: Path, tmp_path: Path) -> None:
    if find_spec(lightning) is None:
        pytest.skip(f"{lightning} is not installed")
    attaches(without_network(tmp_path / "environment", wheel, lightning), lightning, tmp_path)


@pytest.mark.network
@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
@pytest.mark.parametrize("lightning", PACKAGES)
def test_oldest_and_newest_libraries_do(lightning: str, resolution: str, wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    try:
        attaches(with_network(environment, wheel, f"{lightning}>=2.2", resolution), lightning, tmp_path)
    finally:
        shutil.rmtree(environment, ignore_errors=True)  # gigabytes
