"""A request to end, at each stage of a run: its exit code, its record, and that nothing of the run is left."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric.plugins.environments import SLURMEnvironment
from lightning.fabric.plugins.environments.lightning import find_free_network_port

from strobe.app.run.ending import Ending
from strobe.process.signals import Requests
from strobe.records.joining import last_steps
from strobe.records.run import read_summary
from support.fitting import Model, fit
from support.processes import begin, ended, is_running, wait_for
from support.runs import SHORT

PROGRAM = Path(__file__).with_name("asked.py")
INTERRUPTED = ("building", "sanity", "first", "training", "validation", "checkpoint", "test")
STATUS = (
    {"import": None}
    | dict.fromkeys(INTERRUPTED, "interrupted")
    | dict.fromkeys(("ceilings", "report", "exit"), "completed")
)
GIVEN = (
    "model._target_=strobe.validation.injected_faults.SmallClassifier",
    "trainer.num_sanity_val_steps=1",
    "trainer.limit_val_batches=2",
    "trainer.limit_train_batches=8",
    "checkpoint.save=resume",
    "ceilings=true",
    "ceilings_seconds=0.2",
    "engine.num_workers=1",
    "test=true",
)
PROMISED = 30.0  # seconds
QUICK = {("import", signal.SIGINT), ("validation", signal.SIGHUP), ("ceilings", signal.SIGTERM)}
# No workers: Python 3.11 can hang in a process that is forked beside threads of several ranks (docs/limits.md).
RANKS = ("trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu", "engine.num_workers=0")


def asked(stage: str, number: signal.Signals, folder: Path, root: Path, *overrides: str, **variables: str) -> str:
    """What a run says that is sent a signal at a stage; it ends in time, and leaves nothing running."""
    process = begun(stage, number, folder, root, *overrides, **variables)
    wait_for(lambda: (folder.parent / "asked").exists() or process.poll() is not None)
    process.wait(PROMISED)
    deadline = time.monotonic() + 1.0  # less than the five seconds after which orphaned loader workers end
    while (left := is_running(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    said = process.communicate(timeout=600)[0]
    assert not left, said
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    return said


def begun(stage: str, number: signal.Signals, folder: Path, root: Path, *overrides: str, **variables: str) -> Any:
    """The process of a run that is sent a signal at a stage, and notes when."""
    keys = {one.partition("=")[0] for one in GIVEN}
    given = [*(one for one in SHORT if one.partition("=")[0] not in keys), *GIVEN, f"data.root={root}"]
    given += ["data.tiles_per_class=10", f"hydra.run.dir={folder}", *overrides]
    variables |= {"STAGE": stage, "SIGNAL": str(int(number)), "ASKED": str(folder.parent / "asked")}
    return begin(str(PROGRAM), *given, **variables)


@pytest.mark.slow
def test_a_lost_terminal_ends_no_run_under_nohup(tmp_path: Path, sample_root: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which the process inherits, as from nohup
    try:
        process = begun(
            "training", signal.SIGHUP, tmp_path / "run", sample_root, "ceilings=false", "test=false", TO_GROUP="1"
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    ended(process)
    assert (tmp_path / "asked").exists()
    check_record(tmp_path / "run", "completed")


def check_record(folder: Path, status: str | None) -> None:
    if status is None:
        assert not folder.exists()
        return
    assert read_summary(folder / "summary.json")["status"] == status
    assert (folder / "report.html").is_file()
    assert not (folder / "begun.json").exists()


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        pytest.param(stage, number, marks=[] if (stage, number) in QUICK else pytest.mark.slow)
        for stage in STATUS
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ],
)
@pytest.mark.parametrize("to", ["alone", pytest.param("group", marks=pytest.mark.slow)])
def test_at_each_stage(stage: str, number: signal.Signals, to: str, tmp_path: Path, sample_root: Path) -> None:
    said = asked(stage, number, tmp_path / "run", sample_root, **({"TO_GROUP": "1"} if to == "group" else {}))
    check_record(tmp_path / "run", STATUS[stage])
    assert ("run interrupted" in said) == (STATUS[stage] == "interrupted")


@pytest.mark.parametrize(
    ("stage", "rank"),
    [
        ("training", "1"),
        pytest.param("training", "0", marks=pytest.mark.slow),
        *(
            pytest.param(stage, rank, marks=pytest.mark.slow)
            for stage in ("first", "validation", "test")
            for rank in "01"
        ),
    ],
)
@pytest.mark.parametrize("to", ["alone", pytest.param("group", marks=pytest.mark.slow)])
def test_two_ranks_end_together(stage: str, rank: str, to: str, tmp_path: Path, sample_root: Path) -> None:
    given = (
        *RANKS,
        "trainer.limit_train_batches=1.0",
        "trainer.max_epochs=100",
        "data.batch_size=2",
        "checkpoint.save=none",
    )
    if stage == "test":
        given = (*given, "trainer.max_epochs=1")
    variables = {"TO_RANK": rank} | ({"TO_GROUP": "1"} if to == "group" else {})
    asked(stage, signal.SIGTERM, tmp_path / "run", sample_root, *given, **variables)
    check_record(tmp_path / "run", "interrupted")
    if stage == "training":
        last = last_steps(tmp_path / "run")
        assert len(last) == 2
        assert len(set(last.values())) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "rank", "hangs"),
    [
        ("sanity", "0", "1 python"),
        ("training", "1", "1 collective"),
        ("training", "0", "1 store"),  # whose lock it holds, while others ask for what they have agreed on
        ("training", "0", "0 store"),
        ("validation", "0", "1 python"),  # while the other one waits in a collective of Lightning's
        ("validation", "1", "0 collective"),
        ("checkpoint", "1", "0 python"),
        ("test", "0", "1 python"),
    ],
)
def test_where_one_of_two_ranks_hangs_both_end_by_themselves(
    stage: str, rank: str, hangs: str, tmp_path: Path, sample_root: Path
) -> None:
    given = (*RANKS, "ceilings=false", "trainer.limit_train_batches=1.0", "data.batch_size=2")
    given += ("checkpoint.every_n_steps=3",)
    asked(stage, signal.SIGTERM, tmp_path / "run", sample_root, *given, TO_RANK=rank, HANGS=hangs)
    check_record(tmp_path / "run", "interrupted")


def place_scontrol(folder: Path) -> None:
    """A command that notes what it is asked for."""
    (folder / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n')
    (folder / "scontrol").chmod(0o755)


def test_slurms_sigusr1_is_answered_between_two_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked(Model):
        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            if self.batches == 2:
                os.kill(os.getpid(), signal.SIGUSR1)
                assert not [*tmp_path.glob("*.ckpt")]
            return super().training_step(batch)

    place_scontrol(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, value in {"JOB_ID": "7", "NTASKS": "1", "LOCALID": "0", "PROCID": "0", "NODEID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    fit(Ending(Requests()), model=Asked(), plugins=SLURMEnvironment(), default_root_dir=tmp_path)
    (saved,) = tmp_path.glob("hpc_ckpt_*.ckpt")
    assert torch.load(saved, weights_only=False)["global_step"] == 3
    assert (tmp_path / "asked").read_text() == "requeue 7\n"


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "ranks"), [("building", 1), ("training", 1), ("report", 1), ("training", 2)])
def test_slurms_sigusr1_is_still_lightnings(stage: str, ranks: int, tmp_path: Path, sample_root: Path) -> None:
    """It saves a checkpoint and requeues the job, whose end comes by SIGTERM; one rank alone may hear it.

    Where nothing is trained it ends nothing.
    """
    place_scontrol(tmp_path)
    given = [*SHORT, "model._target_=strobe.validation.injected_faults.SmallClassifier", f"data.root={sample_root}"]
    given += ["data.tiles_per_class=10", f"hydra.run.dir={tmp_path}/run"]
    slurm = {"JOB_ID": "7", "JOB_NAME": "train", "NTASKS": str(ranks), "NODEID": "0"}
    if ranks > 1:
        given += [*RANKS, "data.batch_size=2", "trainer.limit_train_batches=1.0", "trainer.max_epochs=30"]
        slurm |= {"NTASKS_PER_NODE": str(ranks)}
    port = str(find_free_network_port())
    processes = [
        begin(
            str(PROGRAM),
            *given,
            STAGE=stage,
            SIGNAL=str(int(signal.SIGUSR1)),
            TO_RANK=str(ranks - 1),
            LOCAL_RANK=str(rank),
            MASTER_PORT=port,
            PATH=f"{tmp_path}:{os.environ['PATH']}",
            **{f"SLURM_{name}": value for name, value in slurm.items()},
            SLURM_PROCID=str(rank),
            SLURM_LOCALID=str(rank),
        )
        for rank in range(ranks)
    ]
    for process in processes:
        ended(process)
    if stage == "training":
        assert (tmp_path / "asked").read_text() == "requeue 7\n"
    assert (stage == "training") == bool([*tmp_path.glob("run/hpc_ckpt_*.ckpt")])
    assert read_summary(tmp_path / "run" / "summary.json")["status"] == "completed"
