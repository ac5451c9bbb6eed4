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

DATA = """
import sys, time
import torch
import strobe

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.ones(32)

loader = torch.utils.data.DataLoader(Slow(), batch_size=2)
"""
TRAINER = """
from {package} import LightningModule, Trainer

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
for callbacks in [], [strobe.Strobe("mine", trace=True)]:
    Trainer(accelerator="cpu", max_epochs=1, callbacks=callbacks, **quiet).fit(Model(), loader)
"""
LOOP = """
model = torch.nn.Linear(32, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with strobe.watch(loader, directory="loop", trace=True) as batches:
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
"""
FABRIC = """
from {package} import Fabric

fabric = Fabric(accelerator="cpu", devices=1)
model = torch.nn.Linear(32, 2)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
for batch in fabric.setup_dataloaders(loader):
    optimizer.zero_grad()
    fabric.backward(model(batch).square().mean())
    optimizer.step()
"""
END = """
print(sys.argv[1:])
sys.exit(7)
"""
DUEL = ("--quads", "4", "--seconds", "0.05", "--", "train.py", "--", "python", "train.py")
PACKAGES = {
    "lightning": ("lightning.pytorch", "lightning.fabric"),
    "pytorch_lightning": ("pytorch_lightning", "lightning_fabric"),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


def test_it_asks_for_little(wheel: Path) -> None:
    assert {one.name for one in requirements(wheel)} == {"jinja2", "numpy", "rich", "torch"}


def run(folder: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **variables}  # without PYTHONPATH
    return subprocess.run(arguments, capture_output=True, text=True, cwd=folder, env=environment, check=False)


def attaches(python: Path, folder: Path, lightning: str | None = None) -> None:
    """A script leaves records by each door, with traces; its output, arguments and exit code are its own."""

    trainer = TRAINER.format(package=PACKAGES[lightning][0]) if lightning else ""
    (folder / "train.py").write_text(DATA + trainer + LOOP + END)
    done = run(folder, python, "-m", "strobe.run", "--out", "here", "train.py", "--out", "other", "--trace")
    assert (done.returncode, done.stdout) == (7, "['--out', 'other', '--trace']\n"), done.stderr
    assert "Strobe stopped" not in done.stderr
    assert "nothing was trained" not in done.stderr
    for name in ("here", "mine", "loop") if lightning else ("loop",):
        summary = json.loads((folder / name / "summary.json").read_text())
        assert {"loader", "shared_machine"} >= {summary["findings"][0]["cause"]}
        assert summary["verdict"] in " ".join(done.stderr.split())
        assert summary["script"] == "python train.py --out other --trace"
        if name != "here":
            assert (folder / name / "tables" / "operators_by_cpu_time.csv").read_text().count("\n") > 5
            assert summary["traces"]
    if lightning:
        (folder / "plain.py").write_text(DATA + FABRIC.format(package=PACKAGES[lightning][1]))
        done = run(folder, python, "plain.py", STROBE="1", STROBE_OUT="fabric")
        assert done.returncode == 0, done.stderr
        assert json.loads((folder / "fabric" / "summary.json").read_text())["status"] == "completed"


def test_a_loop_is_watched_where_there_is_no_lightning(wheel: Path, tmp_path: Path) -> None:
    python = without_network(tmp_path / "environment", wheel)
    attaches(python, tmp_path)
    page = tmp_path / "loop" / "report.html"
    page.unlink()
    again = run(tmp_path, python, "-m", "strobe.report", "loop")
    assert (again.returncode, page.is_file()) == (0, True), again.stderr
    fought = run(tmp_path, python, "-m", "strobe.duel", *DUEL)
    assert (fought.returncode, "quads" in fought.stdout) == (0, True), fought.stderr
    told = run(tmp_path, python, "-m", "strobe.doctor")
    assert (told.returncode, told.stderr) == (1, "Needed, and missing: Lightning\n"), told.stdout
    refused = run(tmp_path, python, "-m", "strobe.tune", "data=sample")
    assert re.fullmatch(r"This command needs packages .* checkout of Strobe's repository: .*\n", refused.stderr)
    assert refused.returncode == 1


@pytest.mark.parametrize("lightning", PACKAGES)
def test_a_script_is_attached_to_where_nothing_else_is_installed(lightning: str, wheel: Path, tmp_path: Path) -> None:
    if find_spec(lightning) is None:
        pytest.skip(f"{lightning} is not installed")
    attaches(without_network(tmp_path / "environment", wheel, lightning), tmp_path, lightning)


@pytest.mark.network
@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
@pytest.mark.parametrize("lightning", PACKAGES)
def test_oldest_and_newest_libraries_do(lightning: str, resolution: str, wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    try:
        attaches(with_network(environment, wheel, f"{lightning}>=2.2", resolution), tmp_path, lightning)
    finally:
        shutil.rmtree(environment, ignore_errors=True)  # gigabytes
