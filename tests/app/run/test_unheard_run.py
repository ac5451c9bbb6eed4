"""A run whose terminal shows no bullet, and is then gone, trains on."""

from pathlib import Path

import pytest

from strobe.records.run import read_summary
from support.places import ROOT
from support.processes import begin, ended
from support.runs import QUICK


@pytest.mark.parametrize("reads", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_output_ends_no_run(reads: bool, tmp_path: Path, sample_root: Path) -> None:
    given = [*QUICK, f"data.root={sample_root}", "data.tiles_per_class=10", f"hydra.run.dir={tmp_path / 'run'}"]
    given[given.index("trainer.enable_progress_bar=false")] = "trainer.enable_progress_bar=true"
    process = begin(str(ROOT / "train.py"), *given, PYTHONIOENCODING="ascii")
    if reads:
        assert "Epoch 0" in ended(process)
    else:
        assert process.stdout
        process.stdout.close()
        assert process.wait(600) == 0
    assert read_summary(tmp_path / "run" / "summary.json")["status"] == "completed"
