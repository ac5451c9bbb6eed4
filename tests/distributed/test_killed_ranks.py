"""When one of two ranks is killed, the other one names it, and what both recorded is there."""

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver

from distributed.test_ranks_recorded import SCRIPT
from distributed.test_two_ranks import COMMON
from strobe.attach import lost_ranks
from strobe.attach.lost_ranks import LostRanks
from strobe.records.joining import is_whole, last_steps, recover, what_failed
from strobe.records.run import read_summary
from support.places import ROOT
from support.processes import begin, is_running, wait_for

GONE = "Rank 0 has died: its process has ended without a word"
KILLED = "Rank 1 has died: its process was ended by SIGKILL, for example because memory ran out"


def test_a_script_names_the_rank_that_was_killed(tmp_path: Path) -> None:
    process = begin(SCRIPT, cwd=tmp_path, PYTHONPATH=str(ROOT / "src"), FAULT="kill 1")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said  # by its own error, not by Lightning's SIGKILL
    assert said.count(f"{KILLED}. What all ranks recorded: strobe report {tmp_path / 'here'}") == 1
    assert is_whole(tmp_path / "here")
    summary = read_summary(tmp_path / "here" / "summary.json")
    assert summary["error"] == {"type": "ChildProcessError", "message": KILLED, "rank": 1}
    assert last_steps(tmp_path / "here")[1] == 5  # it was killed in step 6
    wait_for(lambda: not is_running(process.pid))


@pytest.mark.slow
def test_a_script_names_rank_0_that_was_killed(tmp_path: Path) -> None:
    process = begin(SCRIPT, cwd=tmp_path, PYTHONPATH=str(ROOT / "src"), FAULT="kill 0")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL, said
    assert said.count(f"{GONE}. What all ranks recorded: strobe report {tmp_path / 'here'}") == 1
    record = recover(tmp_path / "here")
    assert (record.text("error", "message"), record.count("world_size")) == (GONE, 2)
    assert last_steps(tmp_path / "here")[0] == 5


def test_a_rank_that_hangs_says_who_died_before_lightning_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lost_ranks, "PATIENCE", 0.0)
    told: list[str] = []
    with subprocess.Popen(["sleep", "60"]) as other:
        observer = _ChildProcessObserver(os.getpid(), [other], sleep_period=0)
        monkeypatch.setattr(observer, "_terminate_all", lambda: told.append(capsys.readouterr().err))
        launcher = SimpleNamespace(procs=[other])
        trainer = SimpleNamespace(local_rank=0, global_rank=0, strategy=SimpleNamespace(launcher=launcher))
        observer.start()
        LostRanks(tmp_path).on_fit_start(trainer)
        other.kill()
        observer.join()
    assert told == [f"{KILLED}. What all ranks recorded: strobe report {tmp_path}\n"]
    assert what_failed(tmp_path) == {"type": "ChildProcessError", "message": KILLED, "rank": 1}


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "told"), [(1, KILLED), (0, GONE)])
def test_the_application_names_the_rank_that_was_killed(
    rank: int, told: str, tmp_path: Path, sample_root: Path
) -> None:
    given = [*COMMON, "trainer.devices=2", f"data.root={sample_root}", "data.tiles_per_class=10", "hydra.run.dir=run"]
    given[given.index("trainer.max_epochs=1")] = "trainer.max_epochs=-1"
    process, run = begin(str(ROOT / "train.py"), *given, cwd=tmp_path), tmp_path / "run"
    wait_for(lambda: len(steps := last_steps(run)) == 2 and all((step or 0) > 5 for step in steps.values()))
    parent = psutil.Process(process.pid)
    (other,) = (one for one in parent.children() if one.environ().get("LOCAL_RANK") == "1")
    (parent if rank == 0 else other).kill()
    said, _ = process.communicate(timeout=600)
    assert process.returncode == (1 if rank else -signal.SIGKILL), said
    assert said.count(f"{told}. The record is in {run}") == 1, said
    assert "Traceback" not in said
    assert is_whole(run)
    summary = read_summary(run / "summary.json")
    assert summary["status"] == "failed"
    assert summary["error"]["message"].startswith(told)
    assert min(step or 0 for step in last_steps(run).values()) > 5
    wait_for(lambda: not is_running(process.pid))
