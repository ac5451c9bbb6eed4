"""``strobe ceilings``, in this process."""

import json
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from strobe.app.run.ceilings import Ceilings
from strobe.ceilings import explain, main, print_ceilings
from strobe.errors import ConfigError
from strobe.probe.ceilings import blank
from support.ceilings_parts import SMALL
from support.files import tree
from support.refusals import refusal


def test_it_prints_a_table_and_writes_nothing(
    sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main([*SMALL, f"data.root={sample_root}"])
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("loader", "model", "joint", "95% interval", "bounds training", "one after the other"):
        assert words in printed
    assert tree(tmp_path) == {}


def test_the_record_can_be_had_as_json(sample_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*SMALL, f"data.root={sample_root}", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert set(record) == set(blank())
    assert record["loader"] > 0


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data.batch_size=0"], "data.batch_size=0 is out of range"),
        (["data.batchsize=2"], "data.batchsize is not a key"),
        (["loader=nothing"], "loader=nothing is not a choice"),
        (["data.batch_size=="], "cannot be read; give KEY=VALUE"),
        (["data=eurosat", "data.root=/nowhere"], "data.root=/nowhere is not a folder"),
    ],
)
def test_errors_are_one_line(overrides: list[str], words: str) -> None:
    assert words in refusal(lambda: main(overrides), ConfigError)


def test_nothing_measured_is_an_error(
    sample_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Ceilings, "measure", lambda _: blank("model: out of memory"))
    with pytest.raises(SystemExit) as stop:
        main([*SMALL, f"data.root={sample_root}"])
    assert stop.value.code == 1
    assert "Not measured: model: out of memory" in capsys.readouterr().out


def test_the_table_names_what_bounds_what() -> None:
    record = blank("model: out of memory")
    record |= {"loader": 50.0, "intervals": {"loader": [49.0, 51.0], "model": None, "transfer": None}}
    assert explain(record, workers=2) == []
    record |= {"model": 200.0, "joint": 40.0}
    record["intervals"]["model"] = [190.0, 210.0]
    record["storage"] = {"rate": 61.0}
    bounds, shares = explain(record, workers=2)
    assert "The loader bounds training" in bounds
    assert "4.0 times" in bounds
    assert "so together they reach about" in shares
    assert "40.0 images/s" in shares
    console = Console(width=100, record=True)
    cfg = OmegaConf.create({"data": {"batch_size": 4}, "engine": {"num_workers": 2}})
    print_ceilings(record, cfg, console)
    text = console.export_text()
    assert "Not measured: model: out of memory" in text
    assert "49.0 to 51.0" in text
    assert re.search(r"storage \(not decoded\) .* 61\.0", text)
