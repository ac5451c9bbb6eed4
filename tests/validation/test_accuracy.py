"""The ground-truth grid: its cells can run, and what it counts is what hand-made records say."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from strobe.app.config.checks import check
from strobe.app.config.register import register
from strobe.bench.inputs import GENERATED_IMAGES
from strobe.validation import accuracy as grid
from strobe.validation.accuracy import Result, lines, table
from strobe.validation.accuracy_cells import Cell, cells
from support.composing import composed_data
from support.places import ROOT

SLOW = Cell("slow", "loader", ())
CONTROL = Cell("control", None, ())
NAMES = {cell.name: cell for cell in cells(cores=2)}


def record(rate: float | None, *causes: str, speedup: tuple[float, float, float] = (2.0, 1.8, 2.2)) -> dict[str, Any]:
    """As much of a run's record as the grid reads."""
    predicted = dict(zip(("median", "low", "high"), speedup, strict=True))
    findings = [{"cause": cause, "overrides": ["a=1"], "predicted_speedup": predicted} for cause in causes]
    return {"overall_images_per_second": rate, "findings": findings}


def composed(overrides: tuple[str, ...]) -> DictConfig:
    register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        cfg = compose("config", overrides=list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    return cfg


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_is_a_configuration_that_can_run(name: str) -> None:
    cfg = composed(NAMES[name].overrides)
    check(cfg)
    nodes = [cfg.model, cfg.loader, cfg.logger, cfg.engine, *cfg.callbacks.values()]
    assert all(isinstance(get_class(OmegaConf.select(node, "_target_")), type) for node in nodes)


def test_there_are_enough_cells_and_what_is_too_much_depends_on_the_machine() -> None:
    few, many = ({cell.name: cell.given for cell in cells(cores)} for cores in (2, 16))
    assert len(few) == len(cells(cores=2)) == len(set(few.values()))
    controls = sum(cell.cause is None for cell in NAMES.values())
    assert (controls >= 4, len(NAMES) - controls >= 12) == (True, True)
    assert "engine.num_workers=8" in few["many-workers"]
    assert "threads=64" in many["too-many-threads"]


@pytest.mark.parametrize(
    ("cell", "found", "right"),
    [
        (SLOW, ("loader", "small_batch"), True),
        (SLOW, ("small_batch", "loader"), False),
        (SLOW, (), False),
        (CONTROL, ("nothing",), True),
        (CONTROL, ("memory_layout",), False),  # nobody has applied it
        (CONTROL, ("loader",), False),
        (CONTROL, ("callback",), False),
        (CONTROL, (), False),
    ],
)
def test_the_first_finding_is_held_against_the_cell(cell: Cell, found: tuple[str, ...], right: bool) -> None:
    assert Result(cell, [record(10, *found)]).right is right


@pytest.mark.parametrize(("rate", "right"), [(20, True), (21.9, True), (14, False), (30, False)])
def test_a_control_is_right_if_its_finding_gives_what_it_promises(rate: float, right: bool) -> None:
    assert Result(CONTROL, [record(10, "memory_layout")], [record(rate)]).right is right


@pytest.mark.parametrize(
    ("base", "changed", "failure", "row"),
    [
        ([10, 20, 10], [20, 32, 100], None, ["right", "a=1", "2.00 (1.80 to 2.20)", "2.00", "+0%"]),  # of the pairs
        ([10], [24], None, ["right", "a=1", "2.00 (1.80 to 2.20)", "2.40", "-17%"]),
        ([], [], "no space", ["-", "WRONG", "-", "-", "-", "no space"]),
        ([10], [], "no space", ["right", "a=1", "2.00 (1.80 to 2.20)", "-", "no space"]),
        ([10, 11], [20], "no space", ["right", "a=1", "2.00 (1.80 to 2.20)", "2.00", "no space"]),
        ([None], [10], None, ["right", "a=1", "2.00 (1.80 to 2.20)", "-", "-"]),  # a rate that is not known
        ([10], [None], None, ["right", "a=1", "2.00 (1.80 to 2.20)", "-", "-"]),
        ([0], [10], None, ["right", "a=1", "2.00 (1.80 to 2.20)", "-", "-"]),
    ],
)
def test_a_cell_is_a_row_with_its_prediction_beside_what_was_measured(
    base: list[float | None], changed: list[float | None], failure: str | None, row: list[str]
) -> None:
    result = Result(SLOW, [record(rate, "loader") for rate in base], [record(rate) for rate in changed], failure)
    console = Console(file=io.StringIO(), width=200)
    console.print(table([result]))
    (line,) = (line for line in console.file.getvalue().splitlines() if "slow" in line)  # type: ignore[attr-defined]
    assert [cell.strip() for cell in line.split("\u2502")][-1 - len(row) : -1] == row
    assert (failure or "first finding loader, right") in grid.told(result)


def test_a_record_with_nulls_is_judged() -> None:
    result = Result(CONTROL, [{"findings": [{"cause": "nothing", "predicted_speedup": None}]}])
    assert (result.right, result.predicted) == (True, None)
    assert Result(CONTROL, [{"findings": None}]).finding == {}


def test_everything_is_counted() -> None:
    def pair(cell: Cell, cause: str, predicted: float, measured: float) -> Result:
        wide = (predicted, predicted - 0.1, predicted + 0.1)
        return Result(cell, [record(10, cause, speedup=wide)], [record(10 * measured)])

    results = [
        pair(SLOW, "loader", 2.0, 2.0),
        pair(SLOW, "loader", 2.2, 2.0),
        pair(SLOW, "small_batch", 3.0, 2.0),  # a wrong cause's prediction was made to the user too
        pair(CONTROL, "loader", 1.0, 2.0),
        pair(CONTROL, "small_batch", 1.4, 2.0),
        Result(CONTROL, [record(10, "nothing")]),
        Result(SLOW, failure="no space"),
    ]
    assert lines(results) == [
        "first finding right: 2 of 4 injected causes (50%; aim 95%)",
        "controls called loader-bound: 1 of 3 (aim 0); controls right: 1",
        "prediction error: median 30% (aim 10%), 90th percentile 50% (aim 20%), of 5 predictions; "
        "1 measured within the predicted interval",
        "cells that failed: 1",
    ]
    nothing = lines([])
    assert "0 of 0 injected causes (unknown; " in nothing[0]
    assert "median unknown (aim 10%), 90th percentile unknown (aim 20%), of 0" in nothing[2]


def test_cells_come_in_an_order_that_the_seed_decides_and_are_told_from_overrides() -> None:
    first, same, other = (grid.parse(["--seed", seed]).cells for seed in ("1", "1", "2"))
    assert first == same != other
    assert {cell.name for cell in first} == {cell.name for cell in other} == {cell.name for cell in cells()}
    options = grid.parse(["slow-disk", "threads=1", "--repeats", "2", "control-photos", "~callbacks.slow"])
    assert {cell.name for cell in options.cells} == {"slow-disk", "control-photos"}
    assert (options.overrides, options.repeats) == (["threads=1", "~callbacks.slow"], 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["slow-moon"], "'slow-moon' is not a cell; choose from"), (["--repeats", "0"], "must be at least 1")],
)
def test_a_wrong_argument_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        grid.parse(arguments)
    assert said in capsys.readouterr().err


def test_a_run_that_cannot_start_is_a_failure_in_one_line(tmp_path: Path) -> None:
    result = grid.run_cell(Cell("broken", None, ("data.batch_size=0",)), ["threads=1"], tmp_path / "it's", {}, 1)
    assert (result.failure or "").startswith("data.batch_size=0 is out of range")
    assert "\n" not in (result.failure or "")
    assert (result.base, result.changed) == ([], [])


def test_generated_photos_are_read_as_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROBE_DATA", str(tmp_path / "none"))
    variables, told = grid.data_variables(tmp_path)
    assert told == "generated photos"
    monkeypatch.setenv("STROBE_DATA", variables["STROBE_DATA"])
    assert grid.data_variables(tmp_path) == (variables, "CIFAR-10's photos")
    data = composed_data("data=cifar10", "data.verify=false")
    data.setup()
    assert data.datasets["train"][0][0].shape == (3, 32, 32)
    assert len(data.datasets["test"]) == GENERATED_IMAGES


@pytest.mark.slow
def test_a_cell_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    short = ["trainer.max_time={seconds:4}", "ceilings_seconds=1", "data.batch_size=32"]
    monkeypatch.setattr(sys, "argv", ["grid", "slow-callback", *short, "--keep", str(tmp_path)])
    grid.main()
    printed = capsys.readouterr().out
    assert "slow-callback: first finding callback, right" in printed
    assert (tmp_path / "slow-callback" / "changed-0" / "summary.json").is_file()
