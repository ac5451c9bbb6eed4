"""What each rank of somebody's training leaves behind, over gloo; how long the ranks waited for each other."""

import re
import statistics
from pathlib import Path

import pytest
import torch
from lightning.fabric.plugins.environments.lightning import find_free_network_port

from distributed import plain_ranks
from distributed.ranks import EPOCHS, NAP
from strobe.callbacks.columns import PHASES, WAITS
from strobe.diagnose.rank import diagnose
from strobe.records.joining import recover
from strobe.records.ranks import rank_files
from strobe.records.run import Record, read_summary
from strobe.records.step_table import read_table
from support.entry_points import install
from support.places import ROOT
from support.processes import begin, ended

SCRIPT = str(Path(__file__).with_name("ranks.py"))
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2")
JOB = {"JOB_ID": "7", "JOB_NAME": "train", "NTASKS": "2", "NTASKS_PER_NODE": "2", "NODEID": "0"}
SLURM = {f"SLURM_{name}": value for name, value in JOB.items()}


def started(folder: Path, *command: str, **variables: str) -> str:
    return ended(begin(*command, cwd=folder, PYTHONPATH=str(ROOT / "src"), **variables))


def mean(rows: list[dict[str, float]], name: str) -> float:
    return statistics.fmean(row[name] for row in rows)


def test_ranks_record_their_waits_and_change_nothing(tmp_path: Path) -> None:
    said = started(tmp_path, SCRIPT, "plain")
    assert said.count("run completed") == 1
    assert "passes: 24" in said  # by the script's own hook beside that of Strobe
    assert {path.name for path in (tmp_path / "here").iterdir()} == {"steps.csv", "summary.json", "ranks"}
    left = {path.name for path in (tmp_path / "here" / "ranks").iterdir()}
    assert left - {"1-lines.json"} == {"1.csv"}  # of a line that was seen often enough
    joined = read_summary(tmp_path / "here" / "summary.json")["ranks"]
    assert (joined["ranks"], joined["coverage"], joined["last_steps"]) == ([0, 1], 1.0, {"0": 23, "1": 23})
    first, second = (read_table(path).rows() for path in rank_files(tmp_path / "here").values())
    assert [row["started"] for row in second] == sorted(row["started"] for row in second)
    for row in [*first, *second]:
        assert row["elements"] == 4 * 9
        assert row["exposed_wait"] == pytest.approx(sum(row[name] for name in WAITS), abs=1e-6)
        assert all(row[f"wait_{phase}"] <= row[phase] + 1e-6 for phase in PHASES)
    for epoch, phase in enumerate(EPOCHS):
        waiting, napping = ([row for row in rows if row["epoch"] == epoch][1:] for rows in (first, second))
        assert mean(napping, phase) - mean(napping, f"wait_{phase}") >= NAP
        waits = [row["exposed_wait"] for row in waiting]  # the median of steps: a busy machine may hold up either rank
        assert statistics.median(waits) >= NAP / 2
        own = [row["total"] - wait for row, wait in zip(waiting, waits, strict=True)]
        assert statistics.median(own) < statistics.median(row["total"] for row in napping) - NAP / 2
    for rank in (0, 1):
        ours, plain = (torch.load(tmp_path / f"{name}{rank}.pt") for name in ("recorded", "plain"))
        torch.testing.assert_close(ours, plain, rtol=0, atol=0)
        assert plain[-1]["allreduce"] >= 24  # as many collectives as without, such as that of sync_dist in each step


def test_a_watched_loop_of_several_ranks_is_one_record(tmp_path: Path) -> None:
    said = started(tmp_path, *TORCHRUN, "--standalone", str(Path(__file__).with_name("plain_ranks.py")))
    assert said.count("run completed") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"here"}
    summary = read_summary(tmp_path / "here" / "summary.json")
    joined = summary["ranks"]
    assert (joined["ranks"], joined["coverage"], joined["slow"], joined["phase"]) == ([0, 1], 1.0, [1], "forward")
    line = joined["lines"][0]
    assert (line["phase"], Path(line["file"]).name, line["function"]) == ("forward", "plain_ranks.py", "trained")
    findings = diagnose(Record(summary))
    assert "of the forward pass on rank 1 is spent in trained, at plain_ranks.py:" in findings[0].evidence
    first, second = (read_table(path).rows() for path in rank_files(tmp_path / "here").values())
    assert len(first) == len(second) == plain_ranks.EPOCHS * plain_ranks.BATCHES
    assert {row["images"] for row in first} == {8}
    assert {row["elements"] for row in second} == {4 * 8}
    assert mean(first, "wait_backward") >= plain_ranks.NAP / 2


@pytest.mark.parametrize(("launcher", "code"), [("torchrun", 0), ("slurm", 3)])
def test_a_script_is_recorded_whatever_starts_its_ranks(
    launcher: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By STROBE=1 alone; what it prints and its exit code are its own."""
    install(tmp_path / "site", monkeypatch)
    script, port = (str(Path(__file__).with_name("slow_rank.py")), str(code)), str(find_free_network_port())
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("STROBE", "1")
    if launcher == "torchrun":
        each = [begin(*TORCHRUN, "--standalone", *script, cwd=home)]
    else:
        given = [SLURM | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "MASTER_PORT": port} for rank in "01"]
        each = [begin(*script, cwd=home, **variables) for variables in given]
    said = "".join(ended(process, code) for process in each)
    printed = re.findall(r"^rank \d made.*", said, re.MULTILINE)
    assert sorted(printed) == ["rank 0 made 32 steps", "rank 1 made 32 steps"]
    (record,) = home.rglob("summary.json")
    summary = read_summary(record)
    joined = summary["ranks"]
    assert (joined["ranks"], joined["coverage"], joined["slow"], joined["phase"]) == ([0, 1], 1.0, [1], "forward")
    assert summary["verdict"].startswith("Rank 1 takes ")
    assert said.count("\nRank 1 takes ") == 1


@pytest.mark.slow
def test_a_rank_that_is_killed_is_named(tmp_path: Path) -> None:
    process = begin(*TORCHRUN, "--standalone", SCRIPT, cwd=tmp_path, PYTHONPATH=str(ROOT / "src"), FAULT="kill 1")
    process.communicate(timeout=600)
    assert process.returncode == 1
    if (tmp_path / "here" / "summary.json").is_file():  # unless torchrun ended rank 0 before it had written that
        error = read_summary(tmp_path / "here" / "summary.json")["error"]
    else:
        error = recover(tmp_path / "here").summary["error"]
    assert "The rows of rank 1 end" in error["message"]


@pytest.mark.slow
def test_two_launchers_leave_the_rows_of_all_ranks(tmp_path: Path) -> None:
    common = ("--nnodes=2", "--master-addr=127.0.0.1", "--master-port=29713")
    each = [
        begin(*TORCHRUN, *common, f"--node-rank={node}", SCRIPT, cwd=tmp_path, PYTHONPATH=str(ROOT / "src"), NODES="2")
        for node in (0, 1)
    ]
    assert sum(ended(process).count("run completed") for process in each) == 1
    assert [len(read_table(path)) for path in rank_files(tmp_path / "here").values()] == [12, 12, 12, 12]
    assert read_summary(tmp_path / "here" / "summary.json")["ranks"]["ranks"] == [0, 1, 2, 3]
