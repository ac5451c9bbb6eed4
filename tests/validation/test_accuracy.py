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
from strobe.validation.accuracy import Result, Runs, judge, lines, score, table
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


def test_there_are_enough_cells() -> None:
    assert len(NAMES) == len(cells(cores=2))
    assert sum(cell.cause is not None for cell in NAMES.values()) >= 12
    assert sum(cell.cause is None for cell in NAMES.values()) >= 4
    assert len({cell.given for cell in NAMES.values()}) == len(NAMES)


def test_what_is_too_much_depends_on_the_machine() -> None:
    few, many = ({cell.name: cell.given for cell in cells(cores)} for cores in (2, 16))
    assert "engine.num_workers=8" in few["many-workers"]
    assert "threads=64" in many["too-many-threads"]


@pytest.mark.parametrize(
    ("cell", "found", "right"),
    [
        (SLOW, ("loader", "small_batch"), True),
        (SLOW, ("small_batch", "loader"), False),
        (SLOW, (), False),
        (CONTROL, ("nothing",), True),
        (CONTROL, ("memory_layout",), True),
        (CONTROL, ("loader",), False),
        (CONTROL, ("callback",), False),
        (CONTROL, (), False),
    ],
)
def test_the_first_finding_is_held_against_the_cell(cell: Cell, found: tuple[str, ...], right: bool) -> None:
    assert judge(cell, Runs(base=[record(10, *found)])).right is right


def test_the_prediction_is_held_against_the_median_of_the_pairs_ratios() -> None:
    runs = Runs(
        base=[record(10, "loader"), record(20), record(10)],
        changed=[record(20), record(32), record(100)],
    )
    result = judge(SLOW, runs)
    assert (result.measured, result.predicted, result.overrides) == (2.0, (2.0, 1.8, 2.2), ("a=1",))
    assert result.error == 0
    assert result.inside


def test_an_error_is_relative_to_what_was_measured() -> None:
    result = judge(SLOW, Runs(base=[record(10, "loader", speedup=(3.0, 2.5, 3.5))], changed=[record(24)]))
    assert result.error == pytest.approx(3 / 2.4 - 1)
    assert result.inside is False


@pytest.mark.parametrize(
    "runs",
    [
        Runs(failure="no space"),
        Runs(base=[record(10, "loader")], failure="no space"),
        Runs(base=[record(10, "loader"), record(11)], changed=[record(20)], failure="no space"),
    ],
    ids=["at once", "when changed", "later"],
)
def test_a_cell_that_failed_stays_with_its_error(runs: Runs) -> None:
    result = judge(SLOW, runs)
    text = shown(result)
    assert "slow" in text
    assert "no space" in text
    assert result.right is bool(runs.base)
    assert score([result]).failed == 1
    assert score([result]).injected == 1
    assert (result.measured is None) is not runs.changed


@pytest.mark.parametrize("rates", [(None, 10), (10, None), (0, 10)])
def test_a_rate_that_is_not_known_gives_no_ratio(rates: tuple[float | None, float | None]) -> None:
    result = judge(SLOW, Runs(base=[record(rates[0], "loader")], changed=[record(rates[1])]))
    assert (result.measured, result.error, result.inside) == (None, None, None)
    assert score([result]).predictions == 0


def test_a_record_with_nulls_is_judged() -> None:
    result = judge(CONTROL, Runs(base=[{"findings": [{"cause": "nothing", "predicted_speedup": None}]}]))
    assert result.right
    assert result.predicted is None
    assert judge(CONTROL, Runs(base=[{"findings": None}])).found is None


def test_everything_is_counted() -> None:
    def pair(cell: Cell, cause: str, predicted: float, measured: float) -> Result:
        wide = (predicted, predicted - 0.1, predicted + 0.1)
        return judge(cell, Runs(base=[record(10, cause, speedup=wide)], changed=[record(10 * measured)]))

    total = score(
        [
            pair(SLOW, "loader", 2.0, 2.0),
            pair(SLOW, "loader", 2.2, 2.0),
            pair(SLOW, "small_batch", 3.0, 2.0),  # a wrong cause's prediction was made to the user too
            pair(CONTROL, "loader", 1.0, 2.0),
            pair(CONTROL, "small_batch", 1.4, 2.0),
            judge(CONTROL, Runs(base=[record(10, "nothing")])),
            judge(SLOW, Runs(failure="no space")),
        ]
    )
    assert (total.right, total.injected, total.share_right) == (2, 4, 0.5)
    assert (total.controls, total.controls_right, total.loader_bound) == (3, 2, 1)
    assert (total.predictions, total.inside, total.failed) == (5, 1, 1)
    assert total.median_error == pytest.approx(0.3)
    assert total.p90_error == pytest.approx(0.5)
    text = "\n".join(lines(total))
    assert "2 of 4 injected causes (50%; aim 95%)" in text
    assert "loader-bound: 1 of 3 (aim 0)" in text
    assert "median 30% (aim 10%), 90th percentile 50% (aim 20%)" in text


def test_nothing_is_counted_without_cells() -> None:
    total = score([])
    assert (total.share_right, total.median_error, total.p90_error) == (None, None, None)
    assert any("unknown" in line for line in lines(total))


def test_cells_come_in_an_order_that_the_seed_decides() -> None:
    first, same, other = (grid.parse(["--seed", seed]).cells for seed in ("1", "1", "2"))
    assert first == same != other
    assert {cell.name for cell in first} == {cell.name for cell in other} == {cell.name for cell in cells()}


def test_names_and_overrides_are_told_apart() -> None:
    options = grid.parse(["slow-disk", "threads=1", "--repeats", "2", "control-photos", "~callbacks.slow"])
    assert {cell.name for cell in options.cells} == {"slow-disk", "control-photos"}
    assert options.overrides == ["threads=1", "~callbacks.slow"]
    assert options.repeats == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["slow-moon"], "'slow-moon' is not a cell; choose from"), (["--repeats", "0"], "must be at least 1")],
)
def test_a_wrong_argument_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        grid.parse(arguments)
    assert said in capsys.readouterr().err


def test_a_run_that_cannot_start_is_a_failure_in_one_line(tmp_path: Path) -> None:
    runs = grid.run_cell(Cell("broken", None, ("data.batch_size=0",)), ["threads=1"], tmp_path / "it's", {}, 1)
    assert runs.failure is not None
    assert runs.failure.startswith("data.batch_size=0 is out of range")
    assert "\n" not in runs.failure
    assert (runs.base, runs.changed) == ([], [])


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


def shown(*results: Result) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(table(results))
    return console.file.getvalue()  # type: ignore[attr-defined]
