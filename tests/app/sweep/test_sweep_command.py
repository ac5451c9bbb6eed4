"""``python train.py -m`` as a user starts it, on runs of a few steps."""

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from strobe.process.locks import alone_in
from strobe.records.run import read_summary
from support.processes import living, wait_for
from support.runs import Train
from support.sweeping import start, swept, training_into

RANKS = ("trainer=ddp", "trainer.devices=2", "trainer.limit_train_batches=4", "trainer.limit_val_batches=0")


def record_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "sweep.json").read_text())


def outcomes(folder: Path) -> list[list[str]]:
    return [[run["status"] for run in cell["runs"]] for cell in record_of(folder)["cells"]]


@pytest.fixture(scope="module")
def first(sample_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A sweep of two cells of two ranks each, one of which cannot be; and what was said."""
    folder = tmp_path_factory.mktemp("sweeps") / "first"
    return folder, swept(sample_root, folder, *RANKS, "data.batch_size=0,4", "hydra.verbose=strobe.app.sweep")


@pytest.fixture
def again(first: tuple[Path, str], tmp_path: Path) -> Path:
    """That sweep's directory, to be changed."""
    return Path(shutil.copytree(first[0], tmp_path / "again"))


def test_each_cell_is_trained_and_one_that_fails_is_a_row(first: tuple[Path, str]) -> None:
    folder, said = first
    assert outcomes(folder) == [["failed"], ["completed"]]
    (failed,), (completed,) = (cell["runs"] for cell in record_of(folder)["cells"])
    assert failed["error"] == "data.batch_size=0 is out of range; it must be at least 1"
    assert (folder / failed["directory"] / "output.txt").is_file()
    summary = read_summary(folder / completed["directory"] / "summary.json")
    assert (summary["status"], summary["batch_size"], summary["world_size"]) == ("completed", 4, 2)
    assert re.search(r"^\[\d/2\] [\d.,]+ images/s  data.batch_size=4$", said, re.MULTILINE)


def test_a_run_knows_nothing_of_the_sweep(first: tuple[Path, str]) -> None:
    (run,) = first[0].glob("1-*")
    hydra = (run / ".hydra" / "hydra.yaml").read_text()
    assert "mode: RUN" in hydra
    assert "verbose: strobe.app.sweep" in hydra  # of Hydra's own overrides, those that concern a run
    assert not re.search(r"^ *- .*(hydra\.sweep|sweep\.)", hydra, re.MULTILINE)


def test_the_runs_are_compared(first: tuple[Path, str]) -> None:
    folder, _ = first
    cells = json.loads((folder / "comparison.json").read_text())["cells"]
    assert [(cell["name"], cell["status"]) for cell in cells] == [
        ("data.batch_size=4", "completed"),
        ("data.batch_size=0", "failed"),
    ]
    assert (folder / "comparison.html").is_file()


def test_an_interrupted_sweep_says_how_to_go_on(again: Path, sample_root: Path) -> None:
    process = start(sample_root, again, *RANKS, "data.batch_size=4,8", "hydra.verbose=strobe.app.sweep")
    wait_for(lambda: any(again.glob("2-*/.hydra")) and bool(training_into(again)))
    begun = training_into(again)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert "Traceback" not in said
    assert "1 completed before" in said
    assert not living(begun)
    assert record_of(again)["status"] == "interrupted"
    assert outcomes(again) == [["failed"], ["completed"], ["interrupted"]]
    (command,) = re.findall(r"Go on with: (python train.py -m .*)", said)
    assert "data.batch_size=4,8" in command
    assert f"hydra.sweep.dir={again}" in command
    compared = json.loads((again / "comparison.json").read_text())["cells"]
    assert {cell["status"] for cell in compared} == {"completed", "failed", "interrupted"}


def test_without_a_completed_run_the_exit_code_tells(sample_root: Path, tmp_path: Path) -> None:
    typed = ["data.batch_size=0", "seed=-1,-2", "threads=${data.batch_size}"]
    hydra = ["hydra.sweeper.max_batch_size=1", "hydra.sweep.subdir=${hydra.job.num}"]
    swept(sample_root, tmp_path / "sweep", *typed, *hydra, code=1)
    assert outcomes(tmp_path / "sweep") == [["failed"], ["failed"]]
    record = record_of(tmp_path / "sweep")
    assert set(typed) < set(record["overrides"])
    assert [cell["runs"][0]["directory"] for cell in record["cells"]] == ["0", "1"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["-m", "sweep.repeats=0"], "sweep.repeats=0 is out of range; it must be at least 1 and at most 1000"),
        (["-m", "sweep.repeats=1,2"], "sweep.repeats is of the sweep as a whole"),
        (["-m", "seed=1,2", "data.batchsize=1"], "Key 'batchsize' not in 'SampleConfig'"),
        (["-m", "loader=native,nothing"], "Could not find 'loader/nothing'"),
        (
            ["-m", "seed=1,2", "sweep.repeats=3", "hydra/launcher=basic"],
            "with hydra/launcher=basic give seed=1,2,3 for three runs of each cell",
        ),
        (
            ["-m", "seed=1,2", "sweep.timeout_seconds=9", "hydra/launcher=basic"],
            "leave it out with hydra/launcher=",
        ),
        (["-m", "seed=1,2", "hydra.sweep.subdir=same"], "give a hydra.sweep.subdir that differs between cells"),
        (["-m", "seed=1,2", "hydra.sweep.dir=/proc"], "hydra.sweep.dir=/proc cannot be written to ("),
        (["sweep.repeats=3"], "sweep.repeats=3 is for a sweep; add -m, or leave it out"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else None,
)
def test_a_mistake_is_one_sentence(train: Train, tmp_path: Path, overrides: list[str], said: str) -> None:
    ended = train(f"hydra.sweep.dir={tmp_path}/sweep", *overrides)
    assert ended.code == 1
    assert said in ended.output
    assert "Traceback" not in ended.output
    assert not list((tmp_path / "sweep").glob("*-*"))


def test_two_sweeps_cannot_share_a_directory(train: Train, tmp_path: Path) -> None:
    with alone_in(tmp_path, "hydra.sweep.dir"):
        ended = train("-m", "seed=1,2", f"hydra.sweep.dir={tmp_path}")
    assert ended.code == 1
    assert f"hydra.sweep.dir={tmp_path}: another process measures into it" in ended.output


def test_another_launcher_does_not_write_over_a_sweep(train: Train, again: Path) -> None:
    ended = train("-m", "data.batch_size=4", "hydra/launcher=basic", f"hydra.sweep.dir={again}")
    assert ended.code == 1
    assert "holds runs already, and hydra/launcher=basic would write over them" in ended.output


def test_a_damaged_record_is_refused(train: Train, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text("{")
    ended = train("-m", "seed=1,2", f"hydra.sweep.dir={tmp_path}")
    assert ended.code == 1
    assert "holds a sweep.json that is no whole record of a sweep" in ended.output
    assert (tmp_path / "sweep.json").read_text() == "{"


def test_another_launchers_runs_are_compared_too(sample_root: Path, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs pip install .[slurm]")
    sweep = tmp_path / "sweep"
    swept(sample_root, sweep, "hydra/launcher=submitit_local", "trainer.limit_train_batches=1", "data.batch_size=4")
    assert not (sweep / "sweep.json").exists()
    (cell,) = json.loads((sweep / "comparison.json").read_text())["cells"]
    assert (cell["status"], len(cell["runs"])) == ("completed", 1)
