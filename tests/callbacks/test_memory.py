"""Memory profiles of real training runs, read back from their files."""

import csv
import pickle
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer

from strobe.callbacks.memory import MemoryProfiler
from support.fitting import Model, fit

BLOCK = 4_000_000  # bytes that each step of Greedy takes


class Greedy(Model):
    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = super().training_step(batch)
        torch.empty(BLOCK // 4, device=self.device)
        return loss


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def operators(directory: Path) -> dict[str, dict[str, str]]:
    with (directory / "operators_by_memory.csv").open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def watched(directory: Path) -> int:
    """In how many steps the operators were recorded."""
    return int(operators(directory)["aten::addmm"]["calls"])


@pytest.mark.parametrize(
    ("window", "trainer", "expected"),
    [
        pytest.param({}, {}, 3, id="inside"),
        pytest.param({"wait": 0, "warmup": 0, "active": 2}, {}, 2, id="from the first"),
        pytest.param({"wait": 3, "active": 4}, {"max_epochs": 2}, 4, id="over epochs"),
        pytest.param({"wait": 2, "active": 9}, {}, 3, id="early end"),
        pytest.param({"active": 9}, {"fail_at": 4}, 2, id="error"),
        pytest.param({"wait": 2, "warmup": 2, "active": 2}, {}, 2, id="to the last step"),
        pytest.param({"active": 4}, {"accumulate_grad_batches": 3}, 4, id="accumulation"),
    ],
)
def test_operators_are_listed_by_their_memory(
    tmp_path: Path, window: dict[str, int], trainer: dict[str, Any], expected: int
) -> None:
    profiler = MemoryProfiler(tmp_path / "new" / "tables", **window)
    model = Greedy(trainer.get("fail_at", -1))
    with pytest.raises(ArithmeticError) if "fail_at" in trainer else nullcontext():
        fit(profiler, model=model, **{key: value for key, value in trainer.items() if key != "fail_at"})
    assert {"operators_by_memory.txt", "operators_by_memory.csv", "memory.txt"} <= names(profiler.directory)
    assert set(profiler.directory.iterdir()) == set(profiler.files)
    assert watched(profiler.directory) == expected
    rows = operators(profiler.directory)
    assert next(iter(rows)) == "aten::empty"
    assert 0 <= int(rows["aten::empty"]["self_cpu_bytes"]) - expected * BLOCK < 1000
    assert "aten::empty" in (profiler.directory / "operators_by_memory.txt").read_text()


def test_the_peak_is_told(tmp_path: Path) -> None:
    fit(MemoryProfiler(tmp_path))
    text = (tmp_path / "memory.txt").read_text()
    assert "until training step 5\n" in text
    peak = re.search(r"Peak resident memory: ([\d,.]+) MiB \((\d+) bytes\)", text)
    assert peak is not None
    now = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    assert 0.5 * now < int(peak[2]) < 100 * now
    assert float(peak[1].replace(",", "")) == pytest.approx(int(peak[2]) / 2**20, abs=0.1)
    assert "snapshot" not in text


def test_memory_that_runs_out_elsewhere_leaves_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="the run's own"):
        fit(MemoryProfiler(tmp_path), model=Model(3, torch.OutOfMemoryError))
    assert "memory.txt" in names(tmp_path)
    assert not [name for name in names(tmp_path) if "snapshot" in name]


def test_a_run_shorter_than_its_start_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(MemoryProfiler(tmp_path, wait=5))
    assert "training ended after 6 steps, before the first active one" in caplog.text
    assert names(tmp_path) == {"memory.txt"}


def test_each_rank_has_its_peaks_and_rank_0_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "world_size", 2)
    fit(MemoryProfiler(tmp_path / "first"))
    assert {"memory_rank0.txt", "operators_by_memory.csv"} <= names(tmp_path / "first")
    monkeypatch.setattr(Trainer, "global_rank", 1)
    fit(MemoryProfiler(tmp_path / "second"))
    assert names(tmp_path / "second") == {"memory_rank1.txt"}


def test_serves_several_fits(tmp_path: Path) -> None:
    profiler = pickle.loads(pickle.dumps(MemoryProfiler(tmp_path, active=2)))  # strategies that spawn pickle it
    for batches, expected in ((3, 1), (6, 2)):
        fit(profiler, limit_train_batches=batches)
        assert watched(tmp_path) == expected
    assert set(tmp_path.iterdir()) == set(profiler.files)


@pytest.mark.parametrize("name", ["active", "max_entries"])
def test_bad_numbers_are_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0 "):
        MemoryProfiler(tmp_path, **{name: 0})


def allocations(snapshot: Path) -> list[dict[str, Any]]:
    traces = pickle.loads(snapshot.read_bytes())["device_traces"]
    return [event for trace in traces for event in trace if event["action"] == "alloc"]


@pytest.mark.gpu
def test_a_snapshot_tells_who_took_each_block(tmp_path: Path) -> None:
    profiler = MemoryProfiler(tmp_path)
    fit(profiler, model=Greedy(), accelerator="gpu", devices=1)
    snapshot = tmp_path / "memory_snapshot_rank0.pickle"
    assert set(tmp_path.iterdir()) == set(profiler.files) >= {snapshot}
    ours = [event for event in allocations(snapshot) if event["size"] >= BLOCK]
    assert len(ours) == 5  # from the first step to the last active one
    assert all(any(frame["name"] == "training_step" for frame in event["frames"]) for event in ours)
    text = (tmp_path / "memory.txt").read_text()
    assert "Peak allocated on cuda:0" in text
    for command in re.findall(r"python -m (torch\.cuda\._memory_viz (?:stats|trace) .+)", text):
        shown = subprocess.run(
            [sys.executable, "-m", *command.split()], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert shown.stdout
    assert int(next(iter(operators(tmp_path).values()))["self_device_bytes"]) >= 3 * BLOCK


@pytest.mark.gpu
@pytest.mark.parametrize("fail_at", [0, 3, 5], ids=["first", "watched", "later"])
def test_a_snapshot_when_memory_runs_out(tmp_path: Path, fail_at: int) -> None:
    class Hungry(Greedy):
        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            if self.batches == fail_at:
                torch.empty(1 << 50, dtype=torch.uint8, device=self.device)
            return super().training_step(batch)

    with pytest.raises(torch.OutOfMemoryError):
        fit(MemoryProfiler(tmp_path), model=Hungry(), accelerator="gpu", devices=1)
    snapshot = tmp_path / "memory_snapshot_oom_rank0.pickle"
    assert pickle.loads(snapshot.read_bytes())["segments"]
    assert (tmp_path / "memory_snapshot_rank0.pickle").exists() == (fail_at == 5)
    assert snapshot.name in (tmp_path / "memory.txt").read_text()
