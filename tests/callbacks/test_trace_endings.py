"""Traces of runs that end within a cycle, in whatever way."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from torch.profiler import ProfilerAction

from strobe.callbacks.trace import TraceProfiler
from support.fitting import Model, fit
from support.traces import TWO, written

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup"),
]


class StopAfterThree(Callback):
    def on_train_batch_end(self, trainer: Trainer, module: Model, *_: Any) -> None:
        trainer.should_stop = module.batches == 3


@pytest.mark.parametrize(
    ("others", "trainer", "expected"),
    [
        pytest.param((), {"max_steps": 5, "max_epochs": -1}, [[2, 3, 4]], id="max_steps"),
        pytest.param((), {"limit_val_batches": 2}, [[2, 3, 4, 5]], id="last validation"),
        pytest.param((StopAfterThree(),), {}, [[2]], id="early stop"),
        pytest.param((), {"limit_train_batches": 2}, [], id="after warmup"),
        pytest.param((), {"limit_train_batches": 1}, [], id="before warmup"),
    ],
)
def test_a_run_that_ends_in_a_cycle_leaves_its_whole_steps(
    tmp_path: Path, others: tuple[Callback, ...], trainer: dict[str, Any], expected: list[list[int]]
) -> None:
    profiler = TraceProfiler(tmp_path, active=9)
    fit(*others, profiler, **trainer)
    assert written(profiler) == expected
    assert all("_rank0_partial." in path.name for path in profiler.traces)
    assert not profiler.recording


@pytest.mark.parametrize(("fail_at", "expected"), [(1, []), (2, [[2]]), (4, [[2, 3, 4]])])
def test_an_error_passes_and_its_step_is_in_the_trace(tmp_path: Path, fail_at: int, expected: list[list[int]]) -> None:
    profiler = TraceProfiler(tmp_path, active=9)
    with pytest.raises(ArithmeticError, match="the run's own"):
        fit(profiler, model=Model(fail_at))
    assert written(profiler) == expected
    assert all("_rank0_partial." in path.name for path in profiler.traces)
    assert len(profiler.steps) == max(0, fail_at - 2)


def test_a_trace_that_cannot_be_written_does_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Remove(Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            shutil.rmtree(tmp_path, ignore_errors=True)

    profiler, model = TraceProfiler(tmp_path, **TWO), Model()
    fit(Remove(), profiler, model=model)
    assert (model.batches, profiler.traces) == (6, [])
    assert "No trace could be written" in caplog.text


@pytest.mark.parametrize("broken", ["start", "step"])
def test_a_profiler_that_fails_does_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    def refuse(self: torch.profiler.profile) -> None:
        raise RuntimeError("Profiler is already enabled on this thread")

    monkeypatch.setattr(torch.profiler.profile, broken, refuse)
    profiler, model = TraceProfiler(tmp_path, active=2), Model()
    trainer = fit(profiler, model=model)
    assert model.batches == 6
    assert "The profiler failed and is off" in caplog.text
    assert not profiler.recording
    assert type(trainer.profiler).__name__ == "PassThroughProfiler"


def test_a_cycle_that_the_device_cuts_short_is_partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch does when CUPTI's buffers are full: a trace is due before the last active step."""
    step = torch.profiler.profile.step

    def stopped(self: torch.profiler.profile) -> None:
        step(self)
        if self.step_num == 4:
            self.stop_trace()
            self._trace_ready()
            self.current_action = ProfilerAction.NONE

    monkeypatch.setattr(torch.profiler.profile, "step", stopped)
    profiler, model = TraceProfiler(tmp_path, wait=1, warmup=1, active=4), Model()
    fit(profiler, model=model)
    assert model.batches == 6
    assert [step.number for step in profiler.steps][:2] == [2, 3]
    assert "_partial." in profiler.traces[0].name


def test_serves_several_fits_and_stops_once_in_each(tmp_path: Path) -> None:
    profiler = pickle.loads(pickle.dumps(TraceProfiler(tmp_path, active=3)))  # strategies that spawn pickle it
    for _ in range(2):
        trainer = fit(profiler, limit_train_batches=4)
        profiler.on_train_end(trainer)
        profiler.on_exception(trainer)
        profiler.teardown(trainer)
    assert written(profiler) == [[2, 3], [2, 3]]
