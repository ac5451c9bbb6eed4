"""What is said of a script before it is run, and who agrees to it."""

import os
import pty
from contextlib import nullcontext
from pathlib import Path

import pytest

from strobe.errors import StrobeError
from strobe.probe.risks import agree, risks

BEHIND = """
class Net(L.LightningModule):
    def on_fit_end(self): torch.save_hook.save(1)
def main():
    trainer = L.Trainer(max_epochs=1)
    trainer.fit(Net())
    torch.save(1, "weights.pt")
scaler.fit(data)
scaled.save("a")
try:
    other = Trainer()
    other.fit(Net())
    never.save("b")
finally:
    kept.save("c")
"""


@pytest.mark.parametrize(("answer", "goes_on"), [("y", True), ("YES", True), ("n", False), ("", False)])
def test_an_answer_in_a_terminal_goes_on_or_not(
    answer: str, *, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("import wandb")
    person, terminal = pty.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.write(person, f"{answer}\n".encode())
        with nullcontext() if goes_on else pytest.raises(StrobeError, match="Not agreed to, so nothing was run"):
            agree([str(tmp_path / "train.py")], "This runs {line}.", yes=False)
    os.close(person)
    said = capsys.readouterr().err
    assert "train.py:1 imports wandb (network)" in said
    assert said.endswith("Go on? [y/N] ")


def test_what_a_script_does_outside_its_process_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import wandb\nopen('w')\nopen('a.txt', 'w')\nimport sqlite3\npath.open('w')\ntorch.save(1, 'x')\n")
    assert risks([str(path)]) == [
        "train.py:1 imports wandb (network)",
        "train.py:3 open",
        "train.py:4 imports sqlite3 (a database)",
        "train.py:5 path.open",
        "train.py:6 torch.save",
    ]
    assert risks(["-m", "no.such.module"]) == []


OUTSIDE = [  # a line of a script, and what is named of it; by the list of docs/proof.md
    ("writer = SummaryWriter('runs')", "SummaryWriter"),
    ("h5py.File('a.h5', 'w')", "h5py.File"),
    ("h5py.File('a.h5', mode='r')", None),
    ("np.memmap('a.bin', np.float32, mode='w+')", "np.memmap"),
    ("np.memmap('a.bin', np.float32, 'r')", None),
    ("np.memmap('a.bin', np.float32)", "np.memmap"),
    ("h5py.File('x', 'r')", None),
    ("trainer: Trainer = Trainer(); trainer.fit(net); torch.save(1, 'a')", None),
    (f"total = {' + '.join(['1'] * 3000)}", None),  # as generated code has it
    ("lmdb.open('cache')", "lmdb.open"),
    ("lmdb.open('cache', readonly=True, lock=False)", None),
    ("MNIST('.', download=True)", "MNIST (download=True)"),
    ("MNIST('.', download=False)", None),
    ("torch.hub.load('a/b', 'net')", "torch.hub.load (network)"),
    ("load_state_dict_from_url('https://a')", "load_state_dict_from_url (network)"),
    ("AutoModel.from_pretrained('a/b')", "AutoModel.from_pretrained (network)"),
    ("from datasets import load_dataset", "imports datasets (network)"),
    ("L.Trainer().validate(net)", "L.Trainer().validate (it runs)"),
    ("trainer = Trainer(); trainer.test(net)", "trainer.test (it runs)"),
    ("metric.test(net)", None),
    ("class Net:\n def on_validation_epoch_end(self): torch.save(1, 'x')", "torch.save"),
    ("import kafka", "imports kafka (a queue)"),
    ("from psycopg import connect", "imports psycopg (a database)"),
    ("import wandb", "imports wandb (network)"),
    ("WandbLogger().experiment.config", "WandbLogger().experiment (a logger that the script opens itself)"),
    ("log = MLFlowLogger(); log.log_hyperparams({})", "log.log_hyperparams (a logger that the script opens itself)"),
    ("trainer = Trainer(logger=WandbLogger())", None),
    ("log = WandbLogger(); print(log.save_dir)", None),
    ("CometLogger(api_key='a')", "CometLogger (network)"),
    ("import subprocess", "imports subprocess (other processes)"),
    ("import filelock", "imports filelock (locks)"),
]


@pytest.mark.parametrize(("line", "named"), OUTSIDE)
def test_each_kind_of_what_is_done_outside_is_named_by_its_name(line: str, named: str | None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(line)
    found = [each.partition(" ")[2] for each in risks([str(tmp_path / "train.py")])]
    assert found == ([named] if named else [])


def test_what_modules_beside_the_script_do_is_named_too(tmp_path: Path) -> None:
    """A folder named as a library that loads from the network is the script's own."""
    for name, text in {
        "train.py": "import datasets.tiles\nfrom helpers import tell\nopen('a', 'w')",
        "helpers.py": "import train, missing, requests",
        "datasets/__init__.py": "from . import cache",
        "datasets/tiles.py": "from .cache import keep\nfrom ..outside import nothing",
        "datasets/cache.py": "def keep():\n    torch.save(1, 'kept.pt')",
        "unused.py": "import requests",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert risks([str(tmp_path / "train.py")]) == [
        "train.py:3 open",
        "helpers.py:1 imports requests (network)",
        "datasets/cache.py:2 torch.save",
    ]


def test_what_stands_behind_fit_is_not_named_where_that_is_certain(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(BEHIND)
    assert [line.partition(" ")[2] for line in risks([str(path)])] == [
        "torch.save_hook.save",
        "scaled.save",
        "kept.save",
    ]
