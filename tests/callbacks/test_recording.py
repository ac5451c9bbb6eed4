"""What all callbacks have in common that record some steps: which ones, their marks in steps.csv, how they end."""

import csv
import itertools
import logging
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from pyinstrument import Profiler
from torch.profiler import ProfilerAction

from strobe.callbacks.memory import MemoryProfiler
from strobe.callbacks.python_profile import PythonProfiler
from strobe.callbacks.schedule import ACTIVE, Schedule
from strobe.callbacks.steps import StepRecorder
from strobe.callbacks.trace import TraceProfiler
from strobe.diagnose.rank import FEWEST_STEPS
from strobe.measure.timing import WARMUP_STEPS
from support.fitting import Model, break_profiler_stop, fit

Made = Callable[[Path], Any]
RECORDERS: dict[str, Made] = {
    "memory": lambda folder: MemoryProfiler(folder, active=9),
    "events": lambda folder: PythonProfiler(folder, skip_first=1),
    "sampling": lambda folder: PythonProfiler(folder, kind="sampling", skip_first=1),
    "trace": lambda folder: TraceProfiler(folder, active=9),
}


@pytest.mark.parametrize("recorder_first", [False, True])
@pytest.mark.parametrize(
    ("made", "marked"),
    [  # also the step that starts the profiler
        (lambda folder: TraceProfiler(folder, wait=2, active=1), "011100"),
        (lambda folder: TraceProfiler(folder, wait=0, warmup=0, active=2), "110000"),
        (lambda folder: TraceProfiler(folder, active=1, repeat=2), "111111"),
        (lambda folder: MemoryProfiler(folder, wait=2, active=1), "011100"),
        (lambda folder: MemoryProfiler(folder, wait=0, warmup=0, active=2), "110000"),
        (lambda folder: PythonProfiler(folder, skip_first=2, steps=2), "011100"),
        (lambda folder: PythonProfiler(folder, kind="sampling", skip_first=2, steps=2), "011100"),
    ],
)
def test_recorded_steps_are_marked(tmp_path: Path, recorder_first: bool, made: Made, marked: str) -> None:
    profiler, recorder = made(tmp_path / "files"), StepRecorder(tmp_path / "steps.csv")
    ours = (recorder, profiler) if recorder_first else (profiler, recorder)
    fit(*ours, ModelCheckpoint(tmp_path), enable_checkpointing=True)
    rows = csv.DictReader(recorder.path.read_text().splitlines())
    assert [row["profiled"] for row in rows] == list(marked)
    assert not profiler.recording


class Terminate(Callback):
    def on_train_batch_end(self, trainer: Trainer, module: Model, *_: Any) -> None:
        if module.batches == 4:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("how", [ArithmeticError, KeyboardInterrupt, "SIGTERM"])
@pytest.mark.parametrize("name", RECORDERS)
def test_a_run_that_breaks_off_leaves_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, how: type[BaseException] | str
) -> None:
    profiler = RECORDERS[name](tmp_path)
    if how is KeyboardInterrupt:
        monkeypatch.setattr(signal, "signal", lambda *_: None)  # Lightning would leave SIGINT ignored
    model = Model() if isinstance(how, str) else Model(4, how)
    with pytest.raises(ArithmeticError if how is ArithmeticError else SystemExit):
        fit(*([Terminate()] if isinstance(how, str) else []), profiler, model=model)
    assert not profiler.recording
    found = set(tmp_path.iterdir())
    assert found == set(getattr(profiler, "traces", None) or profiler.files)
    assert len(found) >= (1 if name == "trace" else 2)


@pytest.mark.parametrize("name", ["memory", "sampling", "trace"])
def test_a_profiler_that_cannot_stop_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    def broken(*_: Any, **__: Any) -> str:
        raise RuntimeError("the profiler's own")

    break_profiler_stop(monkeypatch)
    monkeypatch.setattr(Profiler, "output", broken)
    with pytest.raises(ArithmeticError, match="the run's own"):
        fit(RECORDERS[name](tmp_path), model=Model(4))
    said = {"memory": "The memory profile is missing", "sampling": "The Python profile is missing"}
    assert said.get(name, "failed and was switched off") in caplog.text
    assert name != "sampling" or not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("name", "files"), [("memory", 2), ("events", 1)])  # tables and peaks; the profile
def test_what_cannot_be_written_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, files: int
) -> None:
    (tmp_path / "tables").write_text("a file")
    profiler, model = RECORDERS[name](tmp_path / "tables"), Model()
    fit(profiler, model=model)
    assert (model.batches, profiler.files) == (6, [])
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == files
    assert all("could not be written" in record.message and record.exc_info is None for record in warnings)


SOME = list(itertools.product((0, 2), (0, 1), (0, 1, 3), (0, 1, 2), (1, 3), (0, 1, 2)))


def test_does_what_torch_does() -> None:
    for values in SOME:
        ours = Schedule(*values)
        theirs = torch.profiler.schedule(**vars(ours))
        assert [ours.action(step) for step in range(40)] == [theirs(step) for step in range(40)], ours


def test_fewer_active_steps_leave_the_cycle_as_long_as_it_was() -> None:
    actions = [Schedule(wait=1, warmup=1, active=4, repeat=2).action(step, active=2) for step in range(13)]
    none, warmup = ProfilerAction.NONE, ProfilerAction.WARMUP
    cycle = [none, warmup, *ACTIVE, none, none]
    assert actions == [*cycle, *cycle, none]


def test_tells_in_time_that_steps_will_be_recorded() -> None:
    for values in SOME:
        schedule = Schedule(*values)
        recorded = [schedule.action(step) in ACTIVE for step in range(23)]
        for ahead in (0, 1, 3):
            expected = [any(recorded[step : step + ahead + 1]) for step in range(20)]
            assert [schedule.records_within(step, ahead) for step in range(20)] == expected, schedule


@pytest.mark.parametrize(
    ("steps", "may", "active", "repeat"),
    [
        (22, {"active", "repeat"}, 3, 2),
        (15, {"active", "repeat"}, 3, 1),
        (15, {"active"}, 1, 2),
        (11, {"active", "repeat"}, 3, 1),
        (9, {"active", "repeat"}, 1, 1),
        (4, {"active", "repeat"}, 1, 1),
        (4, {"repeat"}, 3, 1),
        (4, (), 3, 2),
        (math.inf, {"active", "repeat"}, 3, 2),
    ],
)
def test_a_short_training_is_traced_less(steps: float, may: set[str], active: int, repeat: int) -> None:
    schedule = Schedule(repeat=2)
    found = schedule.shortened(steps, may)
    assert found == replace(schedule, active=active, repeat=repeat)
    if steps < math.inf and {"active", "repeat"} == may:
        assert found.unprofiled(int(steps)) >= min(FEWEST_STEPS, steps - WARMUP_STEPS)


def test_what_goes_on_until_the_end_is_not_shortened() -> None:
    assert Schedule(repeat=0).shortened(10, {"active", "repeat"}) == Schedule(repeat=0)


@pytest.mark.parametrize("name", ["skip_first", "skip_first_wait", "wait", "warmup", "active", "repeat"])
def test_bad_numbers_are_named(name: str) -> None:
    bad = 0 if name == "active" else -1
    with pytest.raises(ValueError, match=f"{name}={bad} "):
        Schedule(**{name: bad})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "wait 1, warm up 1, record 3; cycles: 1"),
        (
            {"skip_first": 4, "repeat": 0, "skip_first_wait": 1},
            "skip 4 steps, then wait 1, warm up 1, record 3; until training ends, the first without the wait",
        ),
    ],
)
def test_describes_itself(values: dict[str, int], words: str) -> None:
    assert Schedule(**values).describe() == words
