"""Sides of a training, measured alone in a process that leaves nothing behind."""

from pathlib import Path

from strobe.app.tuning.alone import Alone
from strobe.process.fork import members

SMALL = "model._target_=strobe.validation.injected_faults.SmallClassifier"


def test_sides_are_measured_one_after_the_other_and_what_fails_is_none(tmp_path: Path, sample_root: Path) -> None:
    given = ["data=sample", "data.tiles_per_class=10", f"data.root={sample_root}", "trainer=cpu", "threads=1", SMALL]
    alone = Alone([*given, "data.batch_size=8", "ceilings_seconds=0.2"], tmp_path, timeout=100)
    try:
        found = {
            changes: alone.measure(side, changes.split())
            for side, changes in (
                ("model", ""),
                ("model", "data.batch_size=16"),
                ("model", "data.batch_size=4096"),
                ("loader", "loader=tifffile engine.num_workers=1"),
            )
        }
        assert alone._process is not None
        session = alone._process.pid
    finally:
        alone.close()
    images = {changes: entry and entry["images_per_step"] for changes, entry in found.items()}
    assert images == {
        "": 8,
        "data.batch_size=16": 16,
        "data.batch_size=4096": None,  # more than there are
        "loader=tifffile engine.num_workers=1": 8,
    }
    assert all(entry["rate"] > 0 for entry in found.values() if entry)
    assert not members(session)
    alone.close()


def test_a_configuration_that_cannot_be_built_has_no_sides(tmp_path: Path) -> None:
    alone = Alone(["data=sample", "data.batch_size=0"], tmp_path, timeout=100)
    assert alone.measure("model", []) is None
    assert "data.batch_size=0 is out of range" in (tmp_path / "output.txt").read_text()
