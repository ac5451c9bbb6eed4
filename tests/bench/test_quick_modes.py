"""The quick mode of every suite, on generated input."""

import json
from pathlib import Path

import pytest

from strobe.bench.command import names
from support.suite_parts import bench

SMALL = {  # each kind of cell
    "convolution": ["suite.sizes=[8]", 'suite.implementations=["four loops","scipy convolve2d",native]'],
    "crop": ["suite.decoders=[pil,native]", "suite.batch_size=4"],
    "overhead": ["data.batch_size=4"],
    "training": ["suite.batch_size=4", "suite.large_batch=8", "suite.workers=1"],
    "workers": ["suite.stages=[normalise]", "suite.workers=[1]"],
}
SUITES = [name for name in names() if name != "loading"]


def measure(suite: str, folder: Path, *overrides: str) -> None:
    given = (f"suite={suite}", "quick=true", "budget_seconds=0", "turn_seconds=0.1", f"hydra.run.dir={folder}")
    said = bench(*given, *overrides)
    record = json.loads((folder / "results.json").read_text())
    assert {cell["status"] for cell in record["cells"]} == {"measured"}, said
    assert record["input"]["generated"]
    assert record["conclusions"]
    tables = {cell["table"] for cell in record["cells"]}
    assert len(list((folder / "pictures").glob("*.svg"))) == len(tables)
    assert (folder / "report.html").read_text().count("<svg") >= len(tables)


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_measures_each_kind_of_cell(suite: str, tmp_path: Path) -> None:
    measure(suite, tmp_path / "run", "rounds=1", *SMALL[suite])


@pytest.mark.slow  # as `make bench` does
@pytest.mark.parametrize("suite", SUITES)
def test_a_suites_quick_mode_measures_every_cell(suite: str, tmp_path: Path) -> None:
    measure(suite, tmp_path / "run")
