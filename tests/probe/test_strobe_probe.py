"""``strobe probe``: scripts as strangers write them, without an edit; what is measured, and what stays as it was."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from strobe.attach.probing import UNLOGGED
from strobe.probe.script import alternative, probe_script
from strobe.process.fork import Failure
from support.entry_points import install
from support.probed import STEPS, hashes, probed, script
from support.programs import FOLDER

WRITING = """
import pathlib, sys, time, torch
from PACKAGE import Trainer
from PACKAGE.callbacks import LearningRateMonitor, ModelCheckpoint, StochasticWeightAveraging
from PACKAGE.demos.boring_classes import BoringModel

class Scans(torch.utils.data.Dataset):
    def __init__(self): self.items = torch.load("items.pt")
    def __len__(self): return len(self.items)
    def __getitem__(self, index):
        time.sleep(0.02)
        return self.items[index]

class Model(BoringModel):
    def on_train_epoch_end(self):
        torch.save(self.state_dict(), pathlib.Path(self.logger.log_dir, "epoch.pt"))
        self.logger.experiment.config.update(epoch=1)
        self.trainer.save_checkpoint("weights.pt")
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=total)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

loader = torch.utils.data.DataLoader(Scans(), batch_size=4)
begun = torch.nn.Linear(32, 1)
optimizer = torch.optim.SGD(begun.parameters(), lr=0.1)
for _, batch in zip(range(1), loader):  # too little to measure
    begun(batch).mean().backward()
    optimizer.step()
trainer = Trainer(max_epochs=1, accelerator="cpu", log_every_n_steps=1, limit_val_batches=2, callbacks=[
    LearningRateMonitor(), ModelCheckpoint(every_n_train_steps=1, save_top_k=-1), StochasticWeightAveraging(0.1)])
assert pathlib.Path(__file__).is_absolute()
trainer.logger.log_hyperparams({"epochs": 1})
trainer.validate(Model(), torch.utils.data.DataLoader(torch.rand(2, 32)))
trainer.logger.save()
sys.stdout.close()
try:
    trainer.fit(Model(), loader, loader)
except BaseException as error:
    print(error)
finally:
    trainer.save_checkpoint("weights.pt")
torch.save({}, "weights.pt")
"""
BEST = "net.trainer.checkpoint_callback.best_model_path"
VALIDATED = "net.trainer.callback_metrics['val_loss']"
HYDRAS = """
import hydra

@hydra.main(version_base=None)
def main(config): print(hydra.core.hydra_config.HydraConfig.get().runtime.output_dir)

main()
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)


def names(record: dict[str, Any], cause: str) -> bool:
    """Whether a cause is found first, with what its absence would give; a busy machine may be told in its place."""
    first = record["findings"][0]
    return first["cause"] == "shared_machine" or (first["cause"] == cause and first["predicted_speedup"]["high"] > 1)


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_a_slow_data_set_is_named_and_nothing_of_the_users_is_touched(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole command, in a folder whose script would write checkpoints, logs and weights."""
    pytest.importorskip(package)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    home, out = tmp_path / "home", tmp_path / "out"
    home.mkdir()
    torch.save(torch.rand(40, 32), home / "items.pt")
    (home / "weights.pt").write_text("mine")
    (home / "train.py").write_text(WRITING.replace("PACKAGE", package))
    before = hashes(home)
    line = [sys.executable, "-m", "strobe.probe", "--seconds", "0.5", "--out", out, "train.py", "--epochs", "3"]
    asked = subprocess.run(line, cwd=home, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert asked.returncode == 2
    assert not out.exists()
    assert "train.py:16 torch.save" in asked.stderr
    assert "add --yes" in asked.stderr
    line.insert(3, "--yes")
    done = subprocess.run(line, cwd=home, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr + (out / "output.txt").read_text()
    assert hashes(home) == before
    record = json.loads((out / "summary.json").read_text())
    assert record["script"] == "python train.py --epochs 3"
    assert names(record, "loader"), record["verdict"]
    ceilings = record["ceilings"]
    assert 0 < ceilings["loader"] < ceilings["model"]
    assert ceilings["joint"] == pytest.approx(1 / (1 / ceilings["loader"] + 1 / ceilings["model"]))
    assert ceilings["reason"] == UNLOGGED  # once an epoch
    assert "samples/s" in done.stdout
    assert "images/s" not in done.stdout
    assert "Logger (off here; strobe run measures loggers)" in done.stdout
    stages = [line.partition(";")[0] for line in done.stderr.splitlines() if line.endswith(" left")]
    assert stages == ["Ordinary training", "The loader alone", "The model alone", "Validation and checkpoints alone"]
    assert {"summary.json", "steps.csv", "report.html", "output.txt"} <= hashes(out).keys()


def test_hydra_writes_nothing_into_the_scripts_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hydra")
    home = tmp_path / "home"
    home.mkdir()
    (home / "train.py").write_text(HYDRAS)
    monkeypatch.chdir(home)
    found = probe_script(["train.py"], tmp_path / "out", seconds=1, timeout=100)
    assert isinstance(found, Failure)
    assert "ended too early" in found.reason
    assert "strobe-" in (tmp_path / "out" / "output.txt").read_text()
    assert hashes(home).keys() == {"train.py"}


def test_a_slow_model_is_known_by_its_ceiling(tmp_path: Path) -> None:
    reason, record = probed(script(tmp_path, STEPS), tmp_path / "out")
    assert reason is None
    ceilings = record["ceilings"]
    assert ceilings["model"] < 3 / 0.01 < ceilings["loader"]
    assert record["efficiency"] > 0.5
    assert record["steps"]["measured"] > 10
    assert names(record, "stalled")


def test_manual_optimization_and_several_optimizers_are_replayed(tmp_path: Path) -> None:
    reason, record = probed(FOLDER / "gan.py", tmp_path / "out")
    assert reason is None
    assert record["ceilings"]["model"] < record["ceilings"]["loader"]


def test_batches_of_varying_shape_are_replayed(tmp_path: Path) -> None:
    reason, record = probed(FOLDER / "varying_shapes.py", tmp_path / "out")
    assert reason is None
    assert record["ceilings"]["loader"] < record["ceilings"]["model"]


def test_a_stream_without_length_is_probed_though_its_workers_start_anew(tmp_path: Path) -> None:
    stream = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return iter(torch.rand(60, 4))
batches = torch.utils.data.DataLoader(Stream(), batch_size=3, num_workers=1)
trainer.fit(Net(), batches)
"""
    reason, record = probed(script(tmp_path, STEPS, stream), tmp_path / "out", seconds=0.2)
    assert reason is None
    assert record["ceilings"]["loader"] > 0
    assert record["ceilings"]["model"] > 0


def test_a_script_of_lightning_cli_is_probed(tmp_path: Path) -> None:
    given = ["fit", "--trainer.accelerator=cpu", "--trainer.max_epochs=1", "--trainer.callbacks=__main__.Fetch"]
    reason, record = probed(FOLDER / "cli.py", tmp_path / "out", *given)
    assert reason is None
    assert names(record, "callback")
    assert record["ceilings"]["model"] > record["overall_images_per_second"]
    assert not [path for path in (tmp_path / "out" / "scratch").rglob("*") if path.is_file()]


@pytest.mark.parametrize("side", ["loader", "model"])
def test_one_side_alone_is_an_alternative(side: str, tmp_path: Path) -> None:
    reason, record = probed(script(tmp_path, STEPS), tmp_path / "out", sides=(side,))
    assert reason is None
    (other,) = {"loader", "model"} - {side}
    assert record["ceilings"][other] is None
    assert record["steps"]["measured"] == 0
    entry = alternative(record, side, ["engine.num_workers=2"])
    assert entry is not None
    assert entry["interval"][0] <= entry["rate"] <= entry["interval"][1]
    assert entry["images_per_step"] == 3
    assert alternative(record, other, []) is None


@pytest.mark.parametrize(
    ("fit", "settings", "told"),
    [
        ("", {}, "no Trainer's fit began"),
        ("trainer.fit(Net(), iter(batches))", {}, "the loader can be read only once"),
        ("trainer.fit(Net(), batches)", {"devices": 2, "strategy": "ddp_spawn"}, "its ranks begin by spawn; those of"),
        ("trainer.fit(Net(), Batches([1, 2]))", {}, "its training failed"),
        (f"Net.on_train_start = lambda net: {BEST}; trainer.fit(Net(), batches)", {}, "(checkpoints are off while"),
        (f"Net.on_train_start = lambda net: {VALIDATED}; trainer.fit(Net(), batches)", {}, "(validation is off while"),
        (
            "trainer.fit(Net(), torch.utils.data.DataLoader([]))",
            {},
            "measured: its loader gives no batches",
        ),
    ],
)
def test_what_cannot_be_measured_is_told_in_a_sentence(
    fit: str, settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    reason, _ = probed(script(tmp_path, STEPS, fit, **settings), tmp_path / "out", seconds=0.05)
    assert reason is not None
    assert told in reason
    assert len(reason.splitlines()) == 1


def test_early_stopping_and_the_progress_bar_are_off(tmp_path: Path) -> None:
    """It would end after 2 epochs of 2 steps."""
    fit = """
from lightning.pytorch.callbacks import EarlyStopping, TQDMProgressBar
trainer.callbacks += [EarlyStopping("none", patience=1, check_on_train_epoch_end=True), TQDMProgressBar()]
Net.on_train_epoch_end = lambda net: net.log("none", 1.0)
trainer.fit(Net(), torch.utils.data.DataLoader(torch.rand(6, 4), batch_size=3))
"""
    reason, record = probed(script(tmp_path, STEPS, fit, enable_progress_bar=False), tmp_path / "out", seconds=0.1)
    assert reason is None
    assert record["steps"]["measured"] > 4
    assert "Epoch" not in (tmp_path / "out" / "output.txt").read_text()


@pytest.mark.slow
def test_a_later_run_has_the_same_random_numbers_and_weights(tmp_path: Path) -> None:
    fit = "net = Net(); trainer.fit(net, batches); print(net.layer.weight.tolist(), torch.rand(3).tolist())"
    path = script(tmp_path, f"import torch; torch.manual_seed(7)\n{STEPS.replace('sleep(0.01)', 'sleep(0)')}", fit)

    def trained() -> str:
        line = [sys.executable, path.name]
        said = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        return said.splitlines()[-1]

    before, files = trained(), hashes(tmp_path)
    assert before.startswith("[[")
    probe = [sys.executable, "-m", "strobe.probe", "--yes", "--seconds", "0.2", "--out", "out", path.name]
    subprocess.run(probe, cwd=tmp_path, capture_output=True, check=True)
    assert trained() == before
    assert {name: held for name, held in hashes(tmp_path).items() if not name.startswith("out")} == files


def test_validations_and_checkpoints_are_measured_alone(tmp_path: Path) -> None:
    """Training has neither while it is measured, and nothing is left of them; a validation has 5 of 40 batches."""
    text = STEPS.replace("enable_checkpointing=False, ", "callbacks=[pl.callbacks.ModelCheckpoint('saved')], ")
    fit = """
Net.validation_step = lambda net, batch: time.sleep(0.02)
Net.on_save_checkpoint = lambda net, checkpoint: time.sleep(0.05)
trainer.fit(Net(), batches, torch.utils.data.DataLoader(torch.rand(40, 4)))
"""
    settings = {"val_check_interval": 2, "limit_val_batches": 5}
    path = script(tmp_path, f"import lightning.pytorch as pl\n{text}", fit, **settings)
    reason, record = probed(path, tmp_path / "out")
    assert reason is None
    assert record["ceilings"]["reason"] is None
    alone = record["ceilings"]["between"]
    assert alone["validation"] >= 5 * 0.02 / 2
    assert alone["checkpoints"] >= 0.05 / 20
    assert record["between_seconds"]["validation"] == alone["validation"]
    assert names(record, "validation")
    assert not list(tmp_path.rglob("*.ckpt"))
    assert not (tmp_path / "saved").exists()


def test_all_ranks_take_part(tmp_path: Path) -> None:
    """Each rank sleeps 0.1 s for a batch of 3: 30 images/s alone, 60 together."""
    path = script(
        tmp_path, STEPS.replace("sleep(0.01)", "sleep(0.1)"), devices=2, strategy="ddp", use_distributed_sampler=False
    )
    reason, record = probed(path, tmp_path / "out", seconds=0.2)
    assert reason is None
    assert record["world_size"] == 2
    assert len(record["ranks"]["ranks"]) == 2
    assert record["ceilings"]["reason"] is None
    assert 30 < record["ceilings"]["model"] <= 60
    assert record["ceilings"]["model"] < record["ceilings"]["loader"]


@pytest.mark.slow
def test_a_rank_that_fails_is_named(tmp_path: Path) -> None:
    fails = "Net.on_train_batch_end = lambda net, *_: net.global_rank and 1 / 0\ntrainer.fit(Net(), batches)"
    reason, _ = probed(script(tmp_path, STEPS, fails, devices=2, strategy="ddp"), tmp_path / "out", seconds=0.2)
    assert reason == "its training failed: rank 1: ZeroDivisionError: division by zero"


def test_a_loader_in_the_hands_of_the_module_is_not_replayed(tmp_path: Path) -> None:
    """What is known of its training is told."""
    reason, record = probed(FOLDER / "dataloader_iter.py", tmp_path / "out", seconds=0.05)
    assert reason is not None
    assert "dataloader_iter" in reason
    assert record["ceilings"]["reason"] == reason
    assert record["steps"]["measured"] > 0


def test_an_error_in_a_replayed_step_leaves_the_loader_known(tmp_path: Path) -> None:
    path = script(tmp_path, STEPS.replace("SHORT", "True"))
    reason, record = probed(path, tmp_path / "out")
    assert reason is None
    assert record["ceilings"]["reason"] == "model: RuntimeError: no such batch"
    assert record["ceilings"]["loader"] > 0
