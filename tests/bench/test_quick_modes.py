"""The quick mode of every suite, on generated input."""

import json
from pathlib import Path

import pytest
from commands import bench

from strobe.bench.command import names


@pytest.mark.parametrize("suite", [name for name in names() if name != "loading"])
def test_a_suites_quick_mode_measures_every_cell(suite: str, tmp_path: Path) -> None:
    said = bench(
        f"suite={suite}", "quick=true", "budget_seconds=0", "turn_seconds=0.1", f"hydra.run.dir={tmp_path}/run"
    )
    record = json.loads((tmp_path / "run" / "results.json").read_text())
    assert {cell["status"] for cell in record["cells"]} == {"measured"}, said
    assert record["input"]["generated"]
    assert record["conclusions"]
    tables = {cell["table"] for cell in record["cells"]}
    assert len(list((tmp_path / "run" / "pictures").glob("*.svg"))) == len(tables)
    assert (tmp_path / "run" / "report.html").read_text().count("<svg") >= len(tables)
