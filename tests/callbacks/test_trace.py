"""Traces of real training runs, read back from their files: their steps, their ends, what bounds them."""

import logging
import os
import pickle
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.profiler import ProfilerAction, ProfilerActivity, record_function

from strobe.callbacks import tracer
from strobe.callbacks.ranges import Ranges
from strobe.callbacks.schedule import Schedule
from strobe.callbacks.trace import TraceProfiler
from strobe.callbacks.trace_writer import Budget, TraceWriter, prune
from strobe.callbacks.tracefile import read_trace
from support.fitting import SOME_VALIDATION, Model, Stream, fit
from support.traces import TWO, in_steps, numbers, written

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
AT_ONCE = {"wait": 0, "warmup": 0, "active": 2}
LONG: dict[str, Any] = {"max_epochs": 5}  # 30 steps
ALL = {"record_shapes": True, "profile_memory": True, "with_stack": True, "with_flops": True}


@pytest.mark.parametrize(
    ("schedule", "trainer", "expected"),
    [
        pytest.param(TWO, {}, [[2, 3]], id="one cycle"),
        pytest.param(TWO | {"repeat": 3}, {"max_epochs": 3}, [[2, 3], [6, 7], [10, 11]], id="epochs"),
        pytest.param(TWO | {"repeat": 2}, {"max_epochs": 5, "limit_train_batches": 2}, [[2, 3], [6, 7]], id="limit"),
        pytest.param(TWO | {"repeat": 2}, {"max_epochs": 2} | SOME_VALIDATION, [[2, 3], [6, 7]], id="validation"),
        pytest.param(TWO, {"accumulate_grad_batches": 3}, [[2, 3]], id="accumulation"),
        pytest.param(TWO | {"repeat": 2}, {"max_epochs": 2, "data": Stream()}, [[2, 3], [6, 7]], id="no length"),
        pytest.param(TWO | {"skip_first": 1}, {}, [[3, 4]], id="skip first"),
        pytest.param(TWO | {"skip_first_wait": 1, "repeat": 2}, {}, [[1, 2], [5]], id="skip first wait"),
        pytest.param(AT_ONCE | {"repeat": 2}, {}, [[0, 1], [2, 3]], id="no pause"),
        pytest.param(AT_ONCE | {"repeat": 0}, {}, [[0, 1], [2, 3], [4, 5]], id="endless"),
        pytest.param({"active": 1, "repeat": 2}, {}, [[2], [5]], id="to the last step"),
    ],
)
def test_each_cycle_leaves_a_trace_of_its_steps(
    tmp_path: Path, schedule: dict[str, int], trainer: dict[str, Any], expected: list[list[int]]
) -> None:
    profiler = TraceProfiler(tmp_path / "new" / "tensorboard", **schedule)
    fit(profiler, **trainer)
    assert written(profiler) == expected
    assert [step.number for step in profiler.steps] == [number for steps in expected for number in steps]
    assert profiler.cycle == len(expected)
    for path, steps in zip(profiler.traces, expected, strict=True):
        partial = "" if len(steps) == schedule["active"] else "_partial"
        assert re.fullmatch(rf".+_{os.getpid()}_rank0{partial}\.\d+\.pt\.trace\.json\.gz", path.name)


@pytest.mark.parametrize(
    ("left", "first", "expected"),
    [(0.0, 1.0, [[2]]), (1000.0, 1.0, [[2, 3, 4], [7, 8, 9]]), (1000.0, 1000.0, [[2, 3, 4], [7, 8, 9]])],
    ids=["over", "long", "long, though the first step is slow"],
)
def test_a_time_limit_that_few_steps_fit_into_shortens_the_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: float, first: float, expected: list[list[int]]
) -> None:
    times = iter([0.0, first, first + 1.0])  # when training began, and two steps ended
    monkeypatch.setattr("strobe.callbacks.trace.time", SimpleNamespace(monotonic=lambda: next(times)))

    class Limit(Callback):
        def time_remaining(self) -> float:
            return left

    profiler = TraceProfiler(tmp_path, repeat=2)
    profiler.may_shorten = ["active", "repeat"]
    fit(profiler, Limit(), max_epochs=5)
    assert written(profiler) == expected
    assert not any("partial" in path.name for path in profiler.traces)


def test_a_step_holds_its_own_fetch_and_checkpoint(tmp_path: Path) -> None:
    class Marked(ModelCheckpoint):
        def on_train_batch_end(self, trainer: Trainer, module: Model, *_: Any) -> None:
            with record_function(f"save {module.batches - 1}"):
                pass

    profiler = TraceProfiler(tmp_path / "traces", **TWO)
    fit(Marked(tmp_path), profiler, enable_checkpointing=True)
    assert in_steps(profiler.traces[0], re.escape(FETCH)) == [[FETCH], [FETCH]]
    assert in_steps(profiler.traces[0], r"save \d") == [["save 2"], ["save 3"]]


def test_tells_of_each_step_whether_it_is_profiled_and_its_cycle(tmp_path: Path) -> None:
    class Notes(Callback):
        text = ""

        def on_train_batch_start(self, *_: Any) -> None:
            self.text += f"{profiler.cycle}{'+' if profiler.recording else '-'} "

    profiler, notes = TraceProfiler(tmp_path, skip_first=1, **TWO, repeat=2), Notes()
    fit(notes, profiler, max_epochs=2)
    assert notes.text == "0- 0- 0+ 0+ 0+ 1- 1+ 1+ 1+ 2- 2- 2- "


def test_asks_torch_only_for_steps_of_a_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = []
    step = torch.profiler.profile.step
    monkeypatch.setattr(torch.profiler.profile, "step", lambda self: (stepped.append(self.step_num), step(self)))
    fit(TraceProfiler(tmp_path, wait=3, warmup=1, active=2, repeat=2), max_epochs=3)
    assert stepped == [2, 3, 4, 5, 8, 9, 10, 11]


@pytest.mark.parametrize("name", ["active", "max_mb", "keep"])
def test_a_bad_number_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0 is too small"):
        TraceProfiler(tmp_path, **{name: 0})


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
@pytest.mark.filterwarnings("ignore:.*your dataloader is not resumable")
@pytest.mark.parametrize("seen", [4, 6], ids=["mid-epoch", "epoch"])
def test_a_resumed_run_goes_on_counting(tmp_path: Path, seen: int) -> None:
    fit(ModelCheckpoint(tmp_path, filename="at", every_n_train_steps=seen), enable_checkpointing=True)
    profiler, model = TraceProfiler(tmp_path / "traces", active=2), Model()
    model.batches = seen
    fit(profiler, model=model, ckpt_path=tmp_path / "at.ckpt", max_epochs=3)
    assert written(profiler) == [[seen + 2, seen + 3]]


class StopAfterThree(Callback):
    def on_train_batch_end(self, trainer: Trainer, module: Model, *_: Any) -> None:
        trainer.should_stop = module.batches == 3  # as EarlyStopping and Timer do it


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


def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    folder = tmp_path / 'a "quoted" \\, a tab\t and two\nlines'
    profiler = TraceProfiler(folder, **TWO, max_mb=100)
    fit(profiler)
    assert written(profiler) == [[2, 3]]
    assert list(folder.iterdir()) == profiler.traces


def test_a_trace_that_cannot_be_written_does_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Remove(Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            shutil.rmtree(tmp_path, ignore_errors=True)

    profiler, model = TraceProfiler(tmp_path, **TWO), Model()
    fit(Remove(), profiler, model=model)
    assert (model.batches, profiler.traces) == (6, [])
    assert "No trace could be written" in caplog.text


@pytest.mark.parametrize("broken", ["start", "step"])
@pytest.mark.parametrize("full", [False, True], ids=["failing", "full disk"])
def test_a_profiler_that_fails_does_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str, full: bool
) -> None:
    def refuse(self: torch.profiler.profile) -> None:
        if full:
            raise OSError(28, "No space left on device")
        raise RuntimeError("Profiler is already enabled on this thread")

    monkeypatch.setattr(torch.profiler.profile, broken, refuse)
    profiler, model = TraceProfiler(tmp_path, active=2), Model()
    trainer = fit(profiler, model=model)
    assert model.batches == 6
    of_the_disk = " (No space left on device)" if full else ""
    assert f"The profiler failed and was switched off{of_the_disk}; a trace" in caplog.text
    assert ("Traceback" in caplog.text) != full  # a full disk is no fault of ours
    assert not profiler.recording
    assert type(trainer.profiler).__name__ == "PassThroughProfiler"


def test_no_recording_begins_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next cycle's warmup comes at once, and was not prepared for: torch 2.11 crashes if it is ended."""
    noted, start = list[str](), torch.profiler.profile.start_trace

    def refuse(*_: Any, **__: Any) -> None:
        noted.append("failed")
        raise ValueError("the trace is not as expected")

    def begin(self: torch.profiler.profile) -> None:
        noted.append("began")
        start(self)

    monkeypatch.setattr(TraceWriter, "write", refuse)
    monkeypatch.setattr(torch.profiler.profile, "start_trace", begin)
    model = Model()
    fit(TraceProfiler(tmp_path, wait=0, warmup=1, active=1, repeat=3, max_mb=100), model=model)
    assert model.batches == 6
    assert noted[0] == "began"
    assert noted[-1] == "failed"


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
    """Training ends with the schedule, if asked: each rank has a budget of its own, and all must end together."""
    capped, model = TraceProfiler(tmp_path, active=3, max_mb=0.001, stop_after=True, **ALL), Model()
    fit(capped, model=model, **LONG)
    assert written(capped) == [[2]]
    assert model.batches == 5
    assert "profile_memory" not in read_trace(capped.traces[0])
    assert "with a single step; allow at least that" in caplog.text
    assert "without with_stack, profile_memory, with_flops, record_shapes" in caplog.text


def test_a_budget_that_suffices_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    profiler, model = TraceProfiler(tmp_path, **TWO, repeat=2, max_mb=100, stop_after=True), Model()
    fit(profiler, model=model, **LONG)
    assert written(profiler) == [[2, 3], [6, 7]]
    assert model.batches == 8
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


CUPTI, RECORDED = "TEARDOWN_CUPTI", [ProfilerActivity.CPU, ProfilerActivity.CUDA]


@pytest.mark.parametrize(
    ("recorded", "repeat", "version", "before", "after"),
    [
        (RECORDED, 1, "13.2", None, "1"),
        (RECORDED, 1, "12.6", "0", "0"),  # the user's
        (RECORDED, 1, "12.4", None, None),
        (RECORDED, 1, None, None, None),  # AMD's
        (RECORDED, 2, "13.2", None, None),
        (RECORDED[:1], 1, "13.2", None, None),
    ],
)
def test_cupti_is_detached_after_the_single_recording_of_a_gpu_in_a_process(
    *,
    recorded: list[Any],
    repeat: int,
    version: str | None,
    before: str | None,
    after: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(os, "environ", {} if before is None else {CUPTI: before})
    monkeypatch.setattr(tracer, "activities", lambda _: recorded)
    monkeypatch.setattr(tracer, "_recorded", False)
    seen = list[str | None]()

    def profile(**_: Any) -> Any:
        look = lambda: seen.append(os.environ.get(CUPTI))  # noqa: E731
        state = {"step_num": 0, "current_action": ProfilerAction.RECORD_AND_SAVE}
        return SimpleNamespace(start=lambda: None, step=look, stop=look, **state)

    monkeypatch.setattr(torch.profiler, "profile", profile)
    for expected in (after, before):  # the second fit of a process leaves the variable
        tracing = tracer.Tracing(Ranges())
        writer = TraceWriter(tmp_path, [], Budget(None, active=3))
        tracing.start(Schedule(repeat=repeat), {}, torch.device("cpu"), None, writer=writer)
        assert tracing.tracer is not None
        tracing.tracer.step(())
        tracing.stop((), failed=False)
        assert seen == [expected] * 2
        seen.clear()
        assert os.environ.get(CUPTI) == before
