"""The quick mode of every suite, on generated input."""

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strobe.bench import command
from strobe.bench.harness.declare import Cell
from strobe.bench.harness.schedule import Campaign
from support.suite_parts import NETWORK, measured_here
from support.tiny_cells import here

TILES = ("data.root={tiles}", "data.tiles_per_class=10", "data.batch_size=4", NETWORK)
SMALL = {  # a few cells of each suite
    "convolution": ("suite.sizes=[8]", 'suite.implementations=["four loops",native]'),
    "crop": ("suite.decoders=[pil,native]", "suite.batch_size=4"),
    "engines": ("suite.workers=[0]", "suite.batch_sizes=[2]", "suite.tables=[engines,buffers]", *TILES),
    "loading": ("suite.loaders=[skimage,native]", "suite.batch_sizes=[2]", "suite.tables=[load]", *TILES[:2]),
    "overhead": ("data.batch_size=4", NETWORK),
    "profiling": ("suite.tables=[spans]", *TILES),
    "training": ("suite.batch_size=4", "suite.large_batch=8", "suite.workers=1", NETWORK),
    "workers": ("suite.stages=[normalise]", "suite.workers=[1]", "suite.pipelines=[torch,strobe]"),
}


def measure(suite: str, folder: Path, *overrides: str) -> None:
    given = (f"suite={suite}", "quick=true", "budget_seconds=0", "turn_seconds=0.05")
    code, said = measured_here(folder, *given, *overrides)
    assert code == 0, said
    record = json.loads((folder / "results.json").read_text())
    assert {cell["status"] for cell in record["cells"]} == {"measured"}, said
    assert record["input"]["generated"]
    assert record["conclusions"]
    tables = {cell["table"] for cell in record["cells"]}
    assert len(list((folder / "pictures").glob("*.svg"))) == len(tables)
    assert (folder / "report.html").read_text().count("<svg") >= len(tables)


@pytest.mark.parametrize("suite", command.names())
def test_a_suite_measures_and_concludes(
    suite: str, tmp_path: Path, unread_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, but with cells as another one gets them."""

    def run(cell: Cell, *given: Any, **options: Any) -> Any:
        return here(pickle.loads(pickle.dumps(cell)), *given, **options)

    def find(_: Any, search: Any, request: Any, scratch: Path, **__: Any) -> Any:
        return search(request, scratch), {"versions": {}, "host": "here"}

    monkeypatch.delenv("STROBE_DATA", raising=False)
    monkeypatch.setattr("strobe.bench.inputs.GENERATED_PHOTOS", 4)
    monkeypatch.setattr("strobe.bench.suites.overhead.MOST", 4)
    monkeypatch.setattr("strobe.bench.steady.profile", lambda *_, **__: None)
    monkeypatch.setattr(command, "Campaign", partial(Campaign, run=run))
    monkeypatch.setattr(command, "in_fresh_process", find)
    measure(suite, tmp_path / "run", "rounds=1", *(given.format(tiles=unread_root) for given in SMALL.get(suite, ())))


@pytest.mark.slow  # as `make bench` does
@pytest.mark.parametrize("suite", command.names())
def test_a_suites_quick_mode_measures_every_cell(suite: str, tmp_path: Path) -> None:
    measure(suite, tmp_path / "run")
