"""A sweep without training: what is measured and in which order, what goes on, and what the record says."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from strobe.app.run.apart import Ended
from strobe.app.sweep.campaign import Campaign, names, of_cells, opened
from strobe.app.sweep.launcher import longest_training
from strobe.errors import ConfigError
from strobe.records.files import write_summary
from strobe.records.sweep import NAME, UNFINISHED, Sweep
from support.refusals import refusal

COMMAND = "python train.py -m seed=1,2,3"
RATES = {"seed=1": 100.0, "seed=2": "memory ran out", "seed=3": 12.5}


class Trainings:
    """Trains nothing, and leaves behind what a run would; ``broken`` is the training in which Ctrl-C comes."""

    def __init__(
        self, sweep: Path, outcomes: Mapping[str, float | str], broken: int = 0, *, late: bool = False
    ) -> None:
        self.sweep, self.outcomes, self.broken, self.late = sweep, outcomes, broken, late
        self.done: list[str] = []

    def __call__(self, overrides: Sequence[str], folder: Path) -> Ended:
        assert not folder.exists()
        record = json.loads((self.sweep / NAME).read_text())
        told = {run["directory"]: run["error"] for cell in record["cells"] for run in cell["runs"]}
        assert told[str(folder.relative_to(self.sweep))] == UNFINISHED  # should this process be killed now
        self.done.append(" ".join(overrides))
        interrupted = len(self.done) == self.broken
        if interrupted and not self.late:
            raise KeyboardInterrupt
        folder.mkdir()
        outcome = self.outcomes[overrides[0]]
        if isinstance(outcome, str):
            (folder / "output.txt").write_text(outcome)
            return Ended("failed", outcome, 0.1, folder)
        write_summary(folder / "summary.json", {"status": "completed", "overall_images_per_second": outcome})
        if interrupted:
            raise KeyboardInterrupt
        return Ended("completed", None, 2.0, folder)


def sweep_of(folder: Path, repeats: int = 1, seed: int = 0, command: str = COMMAND) -> Sweep:
    return opened(folder, Sweep(command, ["seed=1,2,3"], repeats, seed, "2026-11-20T12:00:00+0000"))


def measured(sweep: Sweep, train: Trainings, *overrides: str) -> Campaign:
    campaign = Campaign(train.sweep, sweep, train, lambda cell: f"{cell.number}-{cell.overrides[0]}")
    campaign.measure([sweep.cell([override]) for override in overrides])
    return campaign


def record_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / NAME).read_text())
    return found


def outcomes(folder: Path) -> dict[str, list[str]]:
    return {cell["overrides"][0]: [run["status"] for run in cell["runs"]] for cell in record_of(folder)["cells"]}


def test_each_round_has_every_cell_in_an_order_that_the_seed_decides(tmp_path: Path) -> None:
    orders = {}
    for name, seed, repeats in (("a", 1, 3), ("again", 1, 3), ("shorter", 1, 2), ("other", 2, 3)):
        (folder := tmp_path / name).mkdir()
        train = Trainings(folder, {f"seed={number}": 1.0 for number in range(8)})
        measured(sweep_of(folder, repeats, seed), train, *train.outcomes)
        orders[name] = train.done
    rounds = [orders["a"][start : start + 8] for start in (0, 8, 16)]
    assert all(sorted(each) == sorted(train.outcomes) for each in rounds)
    assert len({tuple(each) for each in rounds}) == 3
    assert orders["a"] == orders["again"] != orders["other"]
    assert orders["shorter"] == orders["a"][:16]


def test_a_cell_that_fails_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = measured(sweep_of(tmp_path, repeats=2), Trainings(tmp_path, RATES), *RATES)
    record = record_of(tmp_path)
    assert (record["status"], record["repeats"], record["command"]) == ("completed", 2, COMMAND)
    assert outcomes(tmp_path) == {"seed=1": ["completed"] * 2, "seed=2": ["failed"] * 2, "seed=3": ["completed"] * 2}
    failed = record["cells"][1]["runs"][0]
    assert (failed["error"], failed["seconds"]) == ("memory ran out", 0.1)
    assert [run["directory"] for run in record["cells"][0]["runs"]] == ["0-seed=1", "0-seed=1.2"]
    assert [campaign.rate(cell) for cell in campaign.sweep.cells] == [100.0, None, 12.5]
    said = capsys.readouterr().out
    assert said.startswith(
        f"3 cells, 6 runs, one at a time, into {tmp_path}; the first completed run shows how long this takes\n"
    )
    assert said.splitlines()[1].endswith("failed: memory ran out  seed=2")  # which tells nothing of the others
    assert said.splitlines()[3] == "About 0:08 left for the other runs"
    assert len(re.findall(r"^\[\d/6\] failed: memory ran out  seed=2$", said, re.MULTILINE)) == 2
    assert len(re.findall(r"^\[\d/6\] 100 images/s  seed=1$", said, re.MULTILINE)) == 2
    assert len(re.findall(r"^\[\d/6\] 12.5 images/s  seed=3$", said, re.MULTILINE)) == 2


@pytest.mark.parametrize(
    ("max_time", "told"),
    [
        ("00:00:01:30", "; up to 4:30 of training (trainer.max_time), besides starts and tests\n"),
        ({"minutes": 1, "seconds": 30}, "; up to 4:30 of training (trainer.max_time)"),
        (None, "; the first completed run shows how long this takes\n"),
        ({"fortnights": 1}, "; the first completed run shows"),
    ],
)
def test_how_long_it_may_take_is_told_beforehand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], max_time: Any, told: str
) -> None:
    sweep, train = sweep_of(tmp_path), Trainings(tmp_path, RATES)
    campaign = Campaign(tmp_path, sweep, train, lambda cell: str(cell.number), longest_training(max_time))
    campaign.measure([sweep.cell([key]) for key in RATES])
    assert told in capsys.readouterr().out


def test_it_goes_on_without_what_is_completed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(sweep_of(tmp_path), Trainings(tmp_path, RATES), *RATES)
    capsys.readouterr()
    again = Trainings(tmp_path, RATES | {"seed=2": 50.0, "seed=4": 1.0})  # a failed run's directory is emptied
    sweep = sweep_of(tmp_path)
    measured(sweep, again, "seed=4", *RATES)
    assert sorted(again.done) == ["seed=2", "seed=4"]
    assert capsys.readouterr().out.startswith(f"4 cells, 4 runs, one at a time, into {tmp_path}; 2 completed before\n")
    assert [(cell.number, cell.overrides) for cell in sweep.cells][-1] == (3, ["seed=4"])
    assert {status for each in outcomes(tmp_path).values() for status in each} == {"completed"}


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
def test_an_interrupted_sweep_goes_on(tmp_path: Path, late: bool) -> None:
    train = Trainings(tmp_path, RATES, broken=2, late=late)
    with pytest.raises(KeyboardInterrupt):
        measured(sweep_of(tmp_path), train, "seed=1", "seed=3")
    first, second = train.done
    assert record_of(tmp_path)["status"] == "interrupted"
    assert outcomes(tmp_path)[first] == ["completed"]
    assert outcomes(tmp_path)[second] == ["completed" if late else "interrupted"]  # it was about to end anyhow
    again = Trainings(tmp_path, RATES)
    measured(sweep_of(tmp_path), again, "seed=1", "seed=3")
    assert again.done == ([] if late else [second])
    assert record_of(tmp_path)["status"] == "completed"


def test_a_run_that_ended_with_its_killed_sweep_is_kept(tmp_path: Path) -> None:
    measured(sweep_of(tmp_path), Trainings(tmp_path, RATES), "seed=1", "seed=3")
    record = record_of(tmp_path)
    record["cells"][0]["runs"][0] |= {"status": "interrupted", "error": UNFINISHED}
    (tmp_path / NAME).write_text(json.dumps(record))
    again = Trainings(tmp_path, RATES)
    measured(sweep_of(tmp_path), again, "seed=1", "seed=3")
    assert again.done == []
    assert outcomes(tmp_path) == {"seed=1": ["completed"], "seed=3": ["completed"]}


def test_another_configurations_sweep_is_refused(tmp_path: Path) -> None:
    measured(sweep_of(tmp_path), Trainings(tmp_path, RATES), "seed=1")
    said = refusal(lambda: sweep_of(tmp_path, command="python train.py -m --config-name=mine"), ConfigError)
    assert "a sweep with neither --config-name nor --config-dir, and this one has --config-name=mine" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("same", "give a hydra.sweep.subdir that differs between cells"),
        ("/tmp/{0}", "is not below hydra.sweep.dir="),
        ("../{0}", "is not below hydra.sweep.dir="),
        ("there{0}", "is there already or is another run's"),
    ],
)
def test_a_directory_that_is_not_free_is_refused_before_anything_is_trained(
    tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "there1").mkdir()
    train, sweep = Trainings(tmp_path, RATES), sweep_of(tmp_path)
    campaign = Campaign(tmp_path, sweep, train, lambda cell: name.format(cell.number))
    cells = [sweep.cell([override]) for override in RATES]
    assert said in refusal(lambda: campaign.measure(cells), ConfigError)
    assert not train.done


def test_a_cell_does_not_get_the_sweeps_own_keys() -> None:
    jobs = [["loader=native", "sweep.repeats=3", "++sweep.seed=1"], ["loader=skimage", "sweep.repeats=3"]]
    assert of_cells(jobs) == [["loader=native"], ["loader=skimage"]]


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([["seed=1", "threads=1"], ["threads=1", "seed=1"]], "(threads=1 seed=1): a value is given twice"),
        ([["seed=1", "sweep.repeats=1"], ["seed=1", "sweep.repeats=2"]], "sweep.repeats applies to the whole sweep"),
    ],
)
def test_two_cells_cannot_be_the_same(jobs: list[list[str]], said: str) -> None:
    assert said in refusal(lambda: of_cells(jobs), ConfigError)


def test_a_cell_is_called_after_what_differs() -> None:
    sweep = Sweep("", [], 1, 0, "")
    cells = [sweep.cell(["seed=1", "loader=native"]), sweep.cell(["seed=1", "loader=skimage", "threads=2"])]
    assert names(cells) == {0: "loader=native", 1: "loader=skimage threads=2"}
    assert names(cells[:1]) == {0: "seed=1 loader=native"}
    assert names([]) == {}


def test_a_cell_is_known_again_whatever_the_order_of_its_overrides() -> None:
    sweep = Sweep("", [], 1, 0, "")
    given = (["a=1", "b=1"], ["a=2", "b=1"], ["b=1", "a=2"], ["a=3"])
    assert [sweep.cell(overrides).number for overrides in given] == [0, 1, 1, 2]
