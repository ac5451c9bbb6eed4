"""What bounds a trace and a profiled run: the budget, how many are kept, the end that the schedule asks for."""

import logging
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from strobe.callbacks.trace import TraceProfiler
from strobe.callbacks.trace_writer import Budget, prune
from strobe.callbacks.tracefile import read_trace
from support.fitting import Model, fit
from support.traces import TWO, numbers, written

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup"),
]
LONG: dict[str, Any] = {"max_epochs": 5}  # 30 steps
ALL = {"record_shapes": True, "profile_memory": True, "with_stack": True, "with_flops": True}


@pytest.mark.parametrize("warmup", [1, 2, 3])
def test_a_trace_stays_within_its_budget_by_fewer_steps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, warmup: int
) -> None:
    free = TraceProfiler(tmp_path / "free", active=9)
    fit(free, max_epochs=2)
    bytes_of_nine = free.traces[0].stat().st_size
    capped = TraceProfiler(tmp_path / "capped", warmup=warmup, active=9, repeat=2, max_mb=0.6 * bytes_of_nine / 1e6)
    caplog.set_level(logging.WARNING, "strobe.callbacks.trace_writer")
    fit(capped, **LONG)
    first, second = (numbers(path) for path in capped.traces)
    assert first == list(range(1 + warmup, 1 + warmup + len(first)))
    assert second[0] == 2 * (1 + warmup) + 9  # the cycle is as long as it was
    assert 1 <= len(first) < 9
    assert all(path.stat().st_size <= 0.6 * bytes_of_nine for path in capped.traces)
    assert f"so {len(first)} of 9 steps are recorded" in caplog.text


def test_then_by_fewer_options(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    capped = TraceProfiler(tmp_path, active=3, max_mb=0.001, **ALL)
    fit(capped)
    assert written(capped) == [[2]]
    assert "profile_memory" not in read_trace(capped.traces[0])
    assert "with one step; give that much" in caplog.text
    assert "without with_stack, profile_memory, with_flops, record_shapes" in caplog.text


def test_a_budget_that_suffices_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    profiler = TraceProfiler(tmp_path, **TWO, repeat=2, max_mb=100)
    fit(profiler, max_epochs=2)
    assert written(profiler) == [[2, 3], [6, 7]]
    assert not [record for record in caplog.records if record.name == "strobe.callbacks.trace_writer"]


def test_what_comes_out_too_large_without_a_warmup_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    free = TraceProfiler(tmp_path / "free", wait=0, warmup=0, active=6)
    fit(free)
    limit = 0.5 * free.traces[0].stat().st_size
    capped = TraceProfiler(tmp_path / "capped", wait=0, warmup=0, active=6, max_mb=limit / 1e6)
    fit(capped)
    (steps,) = written(capped)
    assert steps == list(range(len(steps)))
    assert 1 <= len(steps) < 6
    assert capped.traces[0].stat().st_size <= limit
    assert f"its last {6 - len(steps)} steps were left out" in caplog.text


@pytest.mark.parametrize(("step_bytes", "active"), [(10, 5), (100, 5), (300, 3), (899, 1), (5000, 1)])
def test_the_budget_counts(step_bytes: int, active: int) -> None:
    budget = Budget(1000, active=5)
    options = budget.learn(step_bytes, ALL)
    assert budget.active == active
    assert options == (ALL if step_bytes <= 900 else dict.fromkeys(ALL, False))
    assert not budget.wants_probe


def test_only_the_newest_traces_are_kept(tmp_path: Path) -> None:
    others = [tmp_path / f"host_1_rank{rank}.5.pt.trace.json.gz" for rank in (0, 1)]
    for other in others:
        other.touch()
    profiler = TraceProfiler(tmp_path, active=1, wait=0, repeat=0, keep=2)
    fit(profiler)
    assert [numbers(path) for path in profiler.traces] == [[3], [5]]
    assert set(tmp_path.iterdir()) == {*profiler.traces, others[1]}  # another rank's


def test_prune_leaves_other_files_alone(tmp_path: Path) -> None:
    names = ["events.out", "h_1_rank0.7.pt.trace.json", "h_1_rank0.30.pt.trace.json.gz", "h_1_rank0.7.txt"]
    for name in names:
        (tmp_path / name).touch()
    prune(tmp_path, 0, 1)
    assert {path.name for path in tmp_path.iterdir()} == set(names) - {"h_1_rank0.7.pt.trace.json"}


@pytest.mark.parametrize("name", ["max_mb", "keep"])
def test_a_bad_limit_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0 is too small"):
        TraceProfiler(tmp_path, **{name: 0})


def test_training_ends_with_the_schedule_if_asked(tmp_path: Path) -> None:
    profiler, model = TraceProfiler(tmp_path, **TWO, repeat=2, stop_after=True), Model()
    fit(profiler, model=model, **LONG)
    assert written(profiler) == [[2, 3], [6, 7]]
    assert model.batches == 8


def test_training_ends_with_the_schedule_whatever_the_budget(tmp_path: Path) -> None:
    """Each rank has a budget of its own, and all must end together."""
    profiler, model = TraceProfiler(tmp_path, active=5, max_mb=0.001, stop_after=True), Model()
    fit(profiler, model=model, **LONG)
    assert written(profiler) == [[2]]
    assert model.batches == 7


@pytest.mark.parametrize(
    ("stop", "trainer"),
    [
        pytest.param("early", {}, id="early stopping"),
        pytest.param("time", {"max_time": timedelta(seconds=0.05)}, id="max_time"),
    ],
)
def test_a_run_that_stops_early_leaves_a_partial_trace(tmp_path: Path, stop: str, trainer: dict[str, Any]) -> None:
    class Monitored(Model):
        def training_step(self, batch: Any) -> Any:
            loss = super().training_step(batch)
            time.sleep(0.01)
            self.log("constant", 1.0)
            return loss

    others = [EarlyStopping("constant", patience=1, check_on_train_epoch_end=True)] if stop == "early" else []
    profiler, model = TraceProfiler(tmp_path, wait=0, warmup=0, active=90), Monitored()
    fit(*others, profiler, model=model, max_epochs=9, **trainer)
    assert 1 <= model.batches < 54
    assert written(profiler) == [list(range(model.batches))]
    assert "_partial." in profiler.traces[0].name


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
@pytest.mark.filterwarnings("ignore:.*your dataloader is not resumable")
@pytest.mark.parametrize("seen", [4, 6], ids=["mid-epoch", "epoch"])
def test_a_resumed_run_goes_on_counting(tmp_path: Path, seen: int) -> None:
    fit(ModelCheckpoint(tmp_path, filename="at", every_n_train_steps=seen), enable_checkpointing=True)
    profiler, model = TraceProfiler(tmp_path / "traces", active=2), Model()
    model.batches = seen
    fit(profiler, model=model, ckpt_path=tmp_path / "at.ckpt", max_epochs=3)
    assert written(profiler) == [[seen + 2, seen + 3]]
