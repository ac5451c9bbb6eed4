"""``python train.py -m`` as a user starts it, on runs of a few steps."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from strobe.app.run.apart import Ended
from strobe.app.sweep import launcher
from strobe.process.locks import alone_in
from strobe.records.run import read_summary
from support.files import names
from support.processes import living, wait_for
from support.run_folders import write_sweep
from support.runs import Train
from support.sweeping import start, swept, training_into

RANKS = ("trainer=ddp", "trainer.devices=1,2", "trainer.limit_val_batches=0", "data.batch_size=4")


def record_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "sweep.json").read_text())


def outcomes(folder: Path) -> list[list[str]]:
    return [[run["status"] for run in cell["runs"]] for cell in record_of(folder)["cells"]]


def test_an_interrupted_sweep_keeps_what_it_has_and_says_how_to_go_on(sample_root: Path, tmp_path: Path) -> None:
    """One real sweep and one real signal: the first cell completes, the second is broken off."""
    folder = tmp_path / "sweep"
    process = start(sample_root, folder, *RANKS, "sweep.seed=1", "hydra.verbose=strobe.app.sweep")
    wait_for(lambda: any(folder.glob("1-*/.hydra")) and bool(training_into(folder)))
    begun = training_into(folder)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert "Traceback" not in said
    assert not living(begun)
    assert record_of(folder)["status"] == "interrupted"
    assert outcomes(folder) == [["completed"], ["interrupted"]]
    assert re.search(r"^\[1/2\] [\d.,]+ images/s  trainer.devices=1$", said, re.MULTILINE)
    (command,) = re.findall(r"Continue with: (python train.py -m .*)", said)
    assert "trainer.devices=1,2" in command
    assert f"hydra.sweep.dir={folder}" in command
    cells = json.loads((folder / "comparison.json").read_text())["cells"]
    assert [(cell["name"], cell["status"]) for cell in cells] == [
        ("trainer.devices=1", "completed"),
        ("trainer.devices=2", "interrupted"),
    ]
    assert (folder / "comparison.html").is_file()
    run = folder / record_of(folder)["cells"][0]["runs"][0]["directory"]
    assert read_summary(run / "summary.json")["status"] == "completed"
    hydra = (run / ".hydra" / "hydra.yaml").read_text()  # a run knows nothing of the sweep
    assert "mode: RUN" in hydra
    assert "num: 0" in hydra  # but that it is a cell, which leaves out ceilings and checkpoints
    assert "verbose: strobe.app.sweep" in hydra  # of Hydra's own overrides, those that concern a run
    assert not re.search(r"^ *- .*(hydra\.sweep|sweep\.)", hydra, re.MULTILINE)


def test_without_a_completed_run_the_exit_code_tells(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        launcher, "train", lambda overrides, folder, **_: (folder.mkdir(), Ended("failed", "no", 1.0, folder))[1]
    )
    typed = ["data.batch_size=0", "seed=-1,-2", "threads=${data.batch_size}"]
    hydra = ["hydra.sweeper.max_batch_size=1", "hydra.sweep.subdir=${hydra.job.num}"]
    ended = train("-m", *typed, *hydra, f"hydra.sweep.dir={tmp_path}/sweep")
    assert ended.code == 1
    assert outcomes(tmp_path / "sweep") == [["failed"], ["failed"]]
    record = record_of(tmp_path / "sweep")
    assert set(typed) < set(record["overrides"])
    assert [cell["runs"][0]["directory"] for cell in record["cells"]] == ["0", "1"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["-m", "sweep.repeats=0"], "sweep.repeats=0 is out of range; it must be at least 1 and at most 1000"),
        (["-m", "sweep.repeats=1,2"], "sweep.repeats applies to the whole sweep"),
        (["-m", "seed=1,2", "data.batchsize=1"], "data.batchsize is not a key"),
        (["-m", "loader=native,nothing"], "loader=nothing is not a choice"),
        (["-m", "data.batch_size=2,many"], "data.batch_size=many does not fit; give a whole number"),
        (["-m", "+lr=0.1,0.2"], "Nothing reads +lr=0.1,0.2; did you mean model.lr?"),
        (["-m", "seed=1,2", "+lr=0.1"], "Nothing reads +lr=0.1; did you mean model.lr?"),
        (["-m", "seed=1,2", "data=eurosat", "data.root=/nowhere"], "data.root=/nowhere is not a folder"),
        (["-m", "seed=1,2", "trainer.devices=0"], "trainer.devices=0 is out of range"),
        (["-m", "seed=1,2", "sweep.fail_if_slower=5%"], "cannot be told from 1 run of each cell; give sweep.repeats=5"),
        (
            ["-m", "loader=pil,tifffile", "sweep.fail_if_slower=5%", "hydra/launcher=basic"],
            "cannot be told from 1 run of each cell; give seed=1,2,3,4,5",
        ),
        (["-m", "seed=1,2", "sweep.fail_if_slower=much", "hydra/launcher=basic"], "much is not a share"),
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
    assert ended.code == (1 if "hydra.sweep.dir=/proc" in overrides else 2)
    assert ended.output.count(said) == 1
    assert "Traceback" not in ended.output
    assert not (tmp_path / "sweep").exists()


def test_a_refused_sweep_leaves_no_folder(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs" / "runs").mkdir(parents=True)
    assert train("-m", "lr=0.1,0.2").code == 2
    assert names(tmp_path / "outputs") == ["runs"]
    (tmp_path / "outputs" / "runs").rmdir()
    assert train("-m", "lr=0.1,0.2").code == 2
    assert not (tmp_path / "outputs").exists()


def test_two_sweeps_cannot_share_a_directory(train: Train, tmp_path: Path) -> None:
    with alone_in(tmp_path, "hydra.sweep.dir"):
        ended = train("-m", "seed=1,2", f"hydra.sweep.dir={tmp_path}")
    assert ended.code == 2
    assert f"hydra.sweep.dir={tmp_path}: another process is writing into it" in ended.output


def test_another_launcher_does_not_write_over_a_sweep(train: Train, tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "sweep", [("seed=1", [100.0])])
    ended = train("-m", "data.batch_size=4", "hydra/launcher=basic", f"hydra.sweep.dir={folder}")
    assert ended.code == 2
    assert "holds runs already, and hydra/launcher=basic would overwrite them" in ended.output


def test_a_damaged_record_is_refused(train: Train, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text("{")
    ended = train("-m", "seed=1,2", f"hydra.sweep.dir={tmp_path}")
    assert ended.code == 1
    assert "has a damaged sweep.json" in ended.output
    assert (tmp_path / "sweep.json").read_text() == "{"


def test_another_launchers_runs_are_compared_too(sample_root: Path, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs pip install .[slurm]")
    sweep = tmp_path / "sweep"
    swept(sample_root, sweep, "hydra/launcher=submitit_local", "trainer.limit_train_batches=1", "data.batch_size=4")
    assert not (sweep / "sweep.json").exists()
    (cell,) = json.loads((sweep / "comparison.json").read_text())["cells"]
    assert (cell["status"], len(cell["runs"])) == ("completed", 1)
