"""Loops without a Trainer, probed by the real command's process: what is measured, and what cannot be."""

from pathlib import Path

import pytest

from strobe.attach.probing_loop import NO_TRAINER
from strobe.probe.script import alternative, probe_script
from strobe.process.fork import Failure
from strobe.records.run import Record, load_record
from support.probed import hashes

LOOP = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 40
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.rand(4)

data = Slow()
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(EPOCHS):
    for batch in BATCHES:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
print("over")
"""


def probe(
    folder: Path,
    *changes: str,
    batches: str = "loader",
    epochs: int = 10**6,
    sides: tuple[str, ...] = ("steps", "loader"),
) -> Record | str:
    """The record of the loop, or why it could not be measured."""
    path = folder / "train.py"
    path.write_text(LOOP.replace("BATCHES", batches).replace("EPOCHS", str(epochs)))
    found = probe_script([str(path)], folder / "out", seconds=0.3, timeout=100, changes=changes, sides=sides)
    return found.reason if isinstance(found, Failure) else load_record(found)


def test_a_stretch_of_a_loop_is_measured_and_its_loader_alone(tmp_path: Path) -> None:
    record = probe(tmp_path, sides=("steps", "loader", "transfer", "model", "between"))
    assert isinstance(record, Record)
    assert (record.count("steps", "measured") or 0) >= 12
    ceilings = record.mapping("ceilings")
    assert 0 < ceilings["loader"] < 400  # 4 samples in 40 ms or more
    assert ceilings["loading"]["batches"] >= 1
    assert (ceilings["model"], ceilings["reason"]) == (None, NO_TRAINER)
    assert record.text("script") == f"python {tmp_path / 'train.py'}"
    first = record.items("findings")[0]
    assert first["cause"] in ("loader", "shared_machine")
    lines = LOOP.splitlines()
    (made,), (updates,) = (record.setting("made")[kind] for kind in ("loader", "optimizer"))
    assert lines[made["line"] - 1].startswith("loader = DataLoader(")
    assert lines[updates["line"] - 1].startswith("optimizer = torch.optim.Adam(")
    assert (record.setting("data.batch_size"), record.setting("model.fused")) == (4, False)
    assert {"summary.json", "steps.csv", "report.html", "output.txt"} <= hashes(tmp_path / "out").keys()
    assert (tmp_path / "out" / "output.txt").read_text() == ""


def test_one_side_of_a_loop_is_measured_with_changes(tmp_path: Path) -> None:
    record = probe(tmp_path, "data.batch_size=8", "model.fused=true", sides=("loader",))
    assert isinstance(record, Record)
    assert (record.setting("data.batch_size"), record.setting("model.fused")) == (8, True)
    entry = alternative(record.summary, "loader", ["data.batch_size=8"])
    assert entry is not None
    assert entry["images_per_step"] == 8
    assert alternative(record.summary, "model", []) is None


def test_a_loop_without_a_loader_has_steps_alone(tmp_path: Path) -> None:
    record = probe(tmp_path, batches="[torch.rand(2000, 4)]")
    assert isinstance(record, Record)
    assert (record.count("steps", "measured") or 0) >= 12
    assert record.mapping("ceilings")["loader"] is None


def test_a_loop_that_ends_by_itself_is_measured_as_far_as_it_came(tmp_path: Path) -> None:
    record = probe(tmp_path, epochs=1)
    assert isinstance(record, Record)
    assert record.mapping("steps")["measured"] == 7  # of ten
    assert record.mapping("ceilings")["loader"]


def test_of_several_loaders_none_is_measured_alone(tmp_path: Path) -> None:
    record = probe(tmp_path, batches="(one + other for one, other in zip(loader, DataLoader(Slow(), batch_size=4)))")
    assert isinstance(record, Record)
    assert record.mapping("ceilings")["reason"] == "loader: batches come from several DataLoaders"


def test_a_loader_that_is_made_in_each_epoch_keeps_no_workers(tmp_path: Path) -> None:
    record = probe(tmp_path, batches="DataLoader(data, batch_size=4, num_workers=1)")
    assert isinstance(record, Record)
    assert record.setting("engine.rebuilt") is True
    assert record.setting("made")["loader"][0]["line"] == next(
        number for number, line in enumerate(LOOP.splitlines(), 1) if "BATCHES" in line
    )
    told = " ".join(str(finding["advice"]) for finding in record.items("findings"))
    assert "persistent_workers=True" not in told or "Make the DataLoader once" in told


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        (
            "(batch for _, batch in zip(range(3), loader))",
            "the script ended too early: no Trainer's fit began, and no loop's optimizer made 9 updates",
        ),
        ("[torch.rand(2)]", "the last line of its output is: RuntimeError: "),
        ("[*10 * [torch.rand(4)], torch.rand(2)]", "the last line of its output is: RuntimeError: "),
    ],
)
def test_a_loop_that_ends_too_early_leaves_no_record(batches: str, told: str, tmp_path: Path) -> None:
    why = probe(tmp_path, batches=batches, epochs=1)
    assert isinstance(why, str)
    assert told in why
    assert hashes(tmp_path / "out").keys() == {"output.txt"}
