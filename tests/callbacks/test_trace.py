"""Traces of real training runs, read back from their files."""

import gzip
import json
import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from callbacks.trace import TraceProfiler

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:.*LeafSpec.* is deprecated:FutureWarning"
    ),  # Lightning 2.6, torch 2.15
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup"),
]

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
SAMPLES = torch.randn(24, 4)
TWO_STEPS = {"wait": 1, "warmup": 1, "active": 2}

Event = dict[str, Any]


class Stream(IterableDataset[tuple[torch.Tensor]]):
    """The samples without a length: Lightning prefetches, and learns of an epoch's end by running dry."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor]]:
        return iter(TensorDataset(SAMPLES))


class Model(LightningModule):
    """A linear layer that marks its batches in the trace as `batch <n>`, counted over the whole run."""

    def __init__(self, fail_at: int = -1, error: BaseException | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.batches = 0
        self.fail_at, self.error = fail_at, error

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        with record_function(f"batch {self.batches}"):
            if self.batches == self.fail_at and self.error is not None:
                raise self.error
            self.batches += 1
            return self.layer(batch[0]).sum()

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.layer(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(
    profiler: TraceProfiler,
    model: Model | None = None,
    *,
    callbacks: tuple[Callback, ...] = (),
    dataset: Dataset[Any] | None = None,
    **trainer: Any,
) -> None:
    """Train for 6 batches an epoch unless `trainer` says otherwise."""
    quiet = ("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger")
    settings = {"max_epochs": 1, "limit_val_batches": 0, "num_sanity_val_steps": 0} | trainer
    loader = DataLoader(TensorDataset(SAMPLES) if dataset is None else dataset, batch_size=4)
    Trainer(
        accelerator="cpu", callbacks=[*callbacks, profiler], **dict.fromkeys(quiet, False), **settings
    ).fit(model or Model(), loader, DataLoader(TensorDataset(SAMPLES), batch_size=4))


def ranges(path: Path) -> list[Event]:
    with gzip.open(path, "rt") as file:
        return [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]


def steps_of(events: list[Event]) -> list[Event]:
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    return sorted(steps, key=lambda step: step["ts"])


def within(step: Event, events: list[Event], pattern: str) -> list[str]:
    end = step["ts"] + step["dur"]
    return [
        event["name"]
        for event in events
        if re.fullmatch(pattern, event["name"])
        and step["ts"] <= event["ts"] <= event["ts"] + event["dur"] <= end
    ]


def numbers(path: Path) -> list[int]:
    """The numbers of the trace's steps, after checking that each holds its own batch and cuts no range."""
    events = ranges(path)
    steps = steps_of(events)
    edges = [edge for step in steps for edge in (step["ts"], step["ts"] + step["dur"])]
    assert edges == sorted(edges)
    spans = [
        event for event in events if event["cat"] in {"cpu_op", "user_annotation"} and event not in steps
    ]
    assert spans
    assert not [span for span in spans for edge in edges if span["ts"] < edge < span["ts"] + span["dur"]]
    found = [int(step["name"].removeprefix("ProfilerStep#")) for step in steps]
    assert [within(step, events, r"batch \d+") for step in steps] == [[f"batch {n}"] for n in found]
    return found


def files(directory: Path) -> list[Path]:
    """What the directory holds, oldest first; hidden files too."""
    return sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize(
    ("schedule", "trainer", "expected"),
    [
        pytest.param(TWO_STEPS, {}, [[2, 3]], id="defaults"),
        pytest.param(TWO_STEPS | {"repeat": 3}, {"max_epochs": 3}, [[2, 3], [6, 7], [10, 11]], id="epochs"),
        pytest.param(
            TWO_STEPS | {"repeat": 2},
            {"max_epochs": 5, "limit_train_batches": 2},
            [[2, 3], [6, 7]],
            id="limit",
        ),
        pytest.param(
            TWO_STEPS | {"repeat": 2},
            {"max_epochs": 2, "val_check_interval": 2, "limit_val_batches": 2, "num_sanity_val_steps": 2},
            [[2, 3], [6, 7]],
            id="validation and sanity check",
        ),
        pytest.param(TWO_STEPS, {"accumulate_grad_batches": 3}, [[2, 3]], id="accumulation"),
        pytest.param(
            TWO_STEPS | {"skip_first": 1, "skip_first_wait": 1, "repeat": 2},
            {"max_epochs": 2},
            [[2, 3], [6, 7]],
            id="skip first",
        ),
        pytest.param({"wait": 0, "warmup": 0, "active": 2, "repeat": 2}, {}, [[0, 1], [2, 3]], id="no pause"),
        pytest.param(
            {"wait": 0, "warmup": 0, "active": 2, "repeat": 0}, {}, [[0, 1], [2, 3], [4, 5]], id="endless"
        ),
        pytest.param(
            {"wait": 1, "warmup": 1, "active": 1, "repeat": 2}, {}, [[2], [5]], id="to the last step"
        ),
    ],
)
def test_each_cycle_leaves_a_trace_of_its_steps(
    tmp_path: Path, schedule: dict[str, int], trainer: dict[str, Any], expected: list[list[int]]
) -> None:
    profiler = TraceProfiler(tmp_path / "new" / "tensorboard", **schedule)
    fit(profiler, **trainer)
    assert [numbers(path) for path in profiler.traces] == expected
    assert files(profiler.directory) == profiler.traces
    assert all(re.fullmatch(r".+_\d+_rank0\.\d+\.pt\.trace\.json\.gz", path.name) for path in profiler.traces)
    assert profiler.steps_profiled == sum(map(len, expected))
    assert profiler.cycle == len(expected)


def test_a_step_holds_its_own_fetch(tmp_path: Path) -> None:
    profiler = TraceProfiler(tmp_path, **TWO_STEPS, repeat=3)
    fit(profiler, max_epochs=2)
    fetches = [
        [within(step, ranges(path), re.escape(FETCH)) for step in steps_of(ranges(path))]
        for path in profiler.traces
    ]
    assert fetches == [[[FETCH], [FETCH]]] * 3


def test_a_dataset_without_length_keeps_the_steps(tmp_path: Path) -> None:
    profiler = TraceProfiler(tmp_path, **TWO_STEPS, repeat=3)
    fit(profiler, dataset=Stream(), max_epochs=2)
    assert [numbers(path) for path in profiler.traces] == [[2, 3], [6, 7], [10, 11]]


class Flags(Callback):
    """Notes the profiler's flags where a clock of steps would read them: before the profiler steps."""

    def __init__(self, profiler: TraceProfiler) -> None:
        self.profiler = profiler
        self.recording = self.disturbed = self.cycles = ""

    def on_train_batch_end(self, *_: Any) -> None:
        self.recording += "01"[self.profiler.recording]
        self.disturbed += "01"[self.profiler.disturbed]
        self.cycles += str(self.profiler.cycle)


def test_flags_follow_the_schedule(tmp_path: Path) -> None:
    profiler = TraceProfiler(tmp_path, skip_first=1, **TWO_STEPS, repeat=2)
    flags = Flags(profiler)
    fit(profiler, callbacks=(flags,), max_epochs=2)
    assert flags.recording == "001110111000"
    assert flags.disturbed == "001111111100"
    assert flags.cycles == "000001111222"


def test_costs_no_more_steps_than_the_schedule_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = []
    step = torch.profiler.profile.step
    monkeypatch.setattr(
        torch.profiler.profile, "step", lambda self: (stepped.append(self.step_num), step(self))
    )
    fit(TraceProfiler(tmp_path, **TWO_STEPS, repeat=2), max_epochs=3)
    assert stepped == list(range(8))


class StopAfter(Callback):
    """Asks for an early stop at the end of a batch."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_end(self, trainer: Trainer, module: Model, *_: Any) -> None:
        trainer.should_stop = module.batches > self.batch


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        pytest.param({"max_steps": 5, "max_epochs": -1}, [2, 3, 4], id="max_steps"),
        pytest.param(
            {"max_epochs": 1, "limit_val_batches": 2}, [2, 3, 4, 5], id="last epoch with validation"
        ),
        pytest.param({"callbacks": (StopAfter(2),)}, [2], id="early stop"),
    ],
)
def test_a_run_that_ends_in_a_cycle_leaves_its_whole_steps(
    tmp_path: Path, trainer: dict[str, Any], expected: list[int]
) -> None:
    profiler = TraceProfiler(tmp_path, active=9)
    fit(profiler, **trainer)
    (path,) = profiler.traces
    assert re.fullmatch(r".+_\d+_rank0_partial\.\d+\.pt\.trace\.json\.gz", path.name)
    assert numbers(path) == expected
    assert files(tmp_path) == [path]
    assert profiler.steps_profiled == len(expected)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_run_that_ends_before_an_active_step_leaves_nothing(tmp_path: Path, batches: int) -> None:
    profiler = TraceProfiler(tmp_path)
    fit(profiler, limit_train_batches=batches)
    assert profiler.traces == files(tmp_path) == []
    assert not profiler.recording


@pytest.mark.parametrize(("fail_at", "expected"), [(1, []), (2, [2]), (4, [2, 3, 4])])
def test_an_error_passes_and_its_step_is_in_the_trace(
    tmp_path: Path, fail_at: int, expected: list[int]
) -> None:
    profiler = TraceProfiler(tmp_path, active=9)
    with pytest.raises(ArithmeticError, match="the run's own"):
        fit(profiler, Model(fail_at, ArithmeticError("the run's own")))
    assert [n for path in profiler.traces for n in numbers(path)] == expected
    assert files(tmp_path) == profiler.traces
    assert all("_rank0_partial." in path.name for path in profiler.traces)
    assert profiler.steps_profiled == max(0, fail_at - 2)


def test_an_interrupt_leaves_a_trace(tmp_path: Path) -> None:
    profiler = TraceProfiler(tmp_path, active=9)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            fit(profiler, Model(3, KeyboardInterrupt()))
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning leaves it ignored
    assert [numbers(path) for path in profiler.traces] == [[2, 3]]


def test_a_profiler_that_cannot_stop_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = torch.profiler.profile.stop

    def broken(self: torch.profiler.profile) -> None:
        stop(self)
        raise RuntimeError("the profiler's own")

    monkeypatch.setattr(torch.profiler.profile, "stop", broken)
    with pytest.raises(ArithmeticError, match="the run's own"):
        fit(TraceProfiler(tmp_path), Model(3, ArithmeticError("the run's own")))
    assert "did not stop cleanly" in caplog.text


def test_a_trace_that_cannot_be_written_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Remover(Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            shutil.rmtree(tmp_path / "traces", ignore_errors=True)

    profiler, model = TraceProfiler(tmp_path / "traces", **TWO_STEPS), Model()
    with caplog.at_level(logging.WARNING):
        fit(profiler, model, callbacks=(Remover(),))
    assert model.batches == 6
    assert profiler.traces == []
    assert "No trace could be written" in caplog.text


def test_serves_several_fits_and_can_be_pickled_before(tmp_path: Path) -> None:
    profiler = pickle.loads(pickle.dumps(TraceProfiler(tmp_path, **TWO_STEPS)))
    fit(profiler)
    fit(profiler)
    assert [numbers(path) for path in profiler.traces] == [[2, 3], [2, 3]]
    assert files(tmp_path) == profiler.traces


def test_stopping_again_changes_nothing(tmp_path: Path) -> None:
    profiler = TraceProfiler(tmp_path, active=9)
    profiler.teardown()
    fit(profiler)
    profiler.on_train_end()
    profiler.on_exception()
    assert [numbers(path) for path in profiler.traces] == [[2, 3, 4, 5]]


@pytest.mark.parametrize(
    "bad",
    [
        {"skip_first": -1},
        {"skip_first_wait": -2},
        {"wait": -1},
        {"warmup": -1},
        {"active": 0},
        {"repeat": -1},
    ],
)
def test_bad_numbers_are_named(tmp_path: Path, bad: dict[str, int]) -> None:
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=f"{name}={value} "):
        TraceProfiler(tmp_path, **bad)


PLUGIN = """
import sys
from torch_tb_profiler.io import Cache
from torch_tb_profiler.profiler.loader import RunLoader

if __name__ == "__main__":
    run = RunLoader("run", sys.argv[1], Cache()).load()
    for (worker, span), profile in sorted(run.profiles.items()):
        print(worker, span, "|".join(str(row[0]) for row in profile.overview["steps"]["rows"]))
"""


def test_the_tensorboard_plugin_reads_the_directory(tmp_path: Path) -> None:
    profiler = TraceProfiler(tmp_path / "traces", **TWO_STEPS, repeat=2)
    fit(profiler, max_epochs=2)
    script = tmp_path / "plugin.py"
    script.write_text(PLUGIN)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", script, profiler.directory],
        capture_output=True,
        text=True,
        env=os.environ | {"TORCH_PROFILER_START_METHOD": "fork"},  # a fifth of the time of "spawn"
        timeout=90,
        check=True,
    )
    worker = profiler.traces[0].name.split("_rank0")[0] + "_rank0"
    assert result.stdout.splitlines() == [f"{worker} 1 2|3", f"{worker} 2 6|7"]
