"""Traces of real training runs, read back from their files."""

import gzip
import json
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
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.profiler import record_function
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from callbacks.trace import TraceProfiler

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),  # Lightning 2.6, torch 2.15
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup"),
]

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
SAMPLES = TensorDataset(torch.randn(24, 4))  # six batches
TWO = {"wait": 1, "warmup": 1, "active": 2}
AT_ONCE = {"wait": 0, "warmup": 0, "active": 2}

Event = dict[str, Any]


class Stream(IterableDataset[Any]):
    """The samples without a length: Lightning prefetches, and learns of an epoch's end by running dry."""

    def __iter__(self) -> Iterator[Any]:
        return iter(SAMPLES)


class Model(LightningModule):
    """A linear layer that marks its batches in the trace as `batch <n>`, counted over the whole run."""

    def __init__(self, fail_at: int = -1, error: type[BaseException] = ArithmeticError) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.batches = 0
        self.fail_at, self.error = fail_at, error

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        with record_function(f"batch {self.batches}"):
            if self.batches == self.fail_at:
                raise self.error("the run's own")
            self.batches += 1
            return self.layer(batch[0]).sum()

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.layer(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(
    profiler: TraceProfiler, *others: Callback, model: Model | None = None, data: Any = SAMPLES, **trainer: Any
) -> None:
    """Train for one epoch of six batches without validation, unless `trainer` says otherwise."""
    quiet = ("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger")
    settings = dict.fromkeys(quiet, False) | {"max_epochs": 1, "limit_val_batches": 0, "num_sanity_val_steps": 0}
    Trainer(accelerator="cpu", callbacks=[*others, profiler], **settings | trainer).fit(
        model or Model(), DataLoader(data, batch_size=4), DataLoader(SAMPLES, batch_size=4)
    )


def read(path: Path) -> tuple[list[Event], list[Event]]:
    """The trace's steps in order, and its other ranges on the CPU."""
    with gzip.open(path, "rt") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    ranges = [event for event in events if event["cat"] in {"cpu_op", "user_annotation"} and event not in steps]
    return sorted(steps, key=lambda step: step["ts"]), ranges


def ends(event: Event) -> float:
    return event["ts"] + event["dur"]


def in_steps(path: Path, pattern: str) -> list[list[str]]:
    """Names of the ranges that match, for each step that holds them whole."""
    steps, ranges = read(path)
    matches = [event for event in ranges if re.fullmatch(pattern, event["name"])]
    return [[e["name"] for e in matches if step["ts"] <= e["ts"] <= ends(e) <= ends(step)] for step in steps]


def numbers(path: Path) -> list[int]:
    """The numbers of the trace's steps, after checking that each holds its own batch and cuts no range."""
    steps, ranges = read(path)
    edges = [edge for step in steps for edge in (step["ts"], ends(step))]
    assert edges == sorted(edges)
    assert not [event for event in ranges for edge in edges if event["ts"] < edge < ends(event)]
    found = [int(step["name"].removeprefix("ProfilerStep#")) for step in steps]
    assert in_steps(path, r"batch \d+") == [[f"batch {number}"] for number in found]
    return found


def written(profiler: TraceProfiler) -> list[list[int]]:
    """The step numbers of each trace, after checking that the directory holds nothing else."""
    assert set(profiler.directory.iterdir()) == set(profiler.traces)
    return [numbers(path) for path in profiler.traces]


VALIDATE = {"val_check_interval": 2, "limit_val_batches": 2, "num_sanity_val_steps": 2}


@pytest.mark.parametrize(
    ("schedule", "trainer", "expected"),
    [
        pytest.param(TWO, {}, [[2, 3]], id="one cycle"),
        pytest.param(TWO | {"repeat": 3}, {"max_epochs": 3}, [[2, 3], [6, 7], [10, 11]], id="epochs"),
        pytest.param(TWO | {"repeat": 2}, {"max_epochs": 5, "limit_train_batches": 2}, [[2, 3], [6, 7]], id="limit"),
        pytest.param(TWO | {"repeat": 2}, {"max_epochs": 2} | VALIDATE, [[2, 3], [6, 7]], id="validation"),
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
    assert profiler.steps_profiled == sum(map(len, expected))
    assert profiler.cycle == len(expected)
    for path, steps in zip(profiler.traces, expected, strict=True):
        partial = "" if len(steps) == schedule["active"] else "_partial"
        assert re.fullmatch(rf".+_{os.getpid()}_rank0{partial}\.\d+\.pt\.trace\.json\.gz", path.name)


def test_a_step_holds_its_own_fetch(tmp_path: Path) -> None:
    profiler = TraceProfiler(tmp_path, **TWO, repeat=3)
    fit(profiler, max_epochs=2)
    assert [in_steps(path, re.escape(FETCH)) for path in profiler.traces] == [[[FETCH], [FETCH]]] * 3


def test_a_step_holds_its_own_checkpoint(tmp_path: Path) -> None:
    class Marked(ModelCheckpoint):
        def on_train_batch_end(self, trainer: Trainer, module: Model, *_: Any) -> None:
            with record_function(f"save {module.batches - 1}"):
                pass

    profiler = TraceProfiler(tmp_path / "traces", **TWO)
    fit(profiler, Marked(tmp_path), enable_checkpointing=True)
    assert in_steps(profiler.traces[0], r"save \d") == [["save 2"], ["save 3"]]


def test_tells_of_each_step_whether_it_is_profiled_and_its_cycle(tmp_path: Path) -> None:
    class Notes(Callback):
        text = ""

        def on_train_batch_start(self, *_: Any) -> None:
            self.text += f"{profiler.cycle}{'+' if profiler.recording else '-'} "

    profiler, notes = TraceProfiler(tmp_path, skip_first=1, **TWO, repeat=2), Notes()
    fit(profiler, notes, max_epochs=2)
    assert notes.text == "0- 0- 0+ 0+ 0+ 1- 1+ 1+ 1+ 2- 2- 2- "


def test_costs_nothing_after_its_last_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = []
    step = torch.profiler.profile.step
    monkeypatch.setattr(torch.profiler.profile, "step", lambda self: (stepped.append(self.step_num), step(self)))
    fit(TraceProfiler(tmp_path, **TWO, repeat=2), max_epochs=3)
    assert stepped == list(range(8))


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
    fit(profiler, *others, **trainer)
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
    assert profiler.steps_profiled == max(0, fail_at - 2)


def test_an_interrupt_leaves_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # Lightning would leave SIGINT ignored
    profiler = TraceProfiler(tmp_path, active=9)
    with pytest.raises(SystemExit):
        fit(profiler, model=Model(3, KeyboardInterrupt))
    assert written(profiler) == [[2, 3]]


def test_a_profiler_that_cannot_stop_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = torch.profiler.profile.stop

    def broken(self: torch.profiler.profile) -> None:
        stop(self)
        raise RuntimeError("the profiler's own")

    monkeypatch.setattr(torch.profiler.profile, "stop", broken)
    with pytest.raises(ArithmeticError, match="the run's own"):
        fit(TraceProfiler(tmp_path), model=Model(3))
    assert "did not stop cleanly" in caplog.text


def test_a_trace_that_cannot_be_written_does_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Remove(Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            shutil.rmtree(tmp_path, ignore_errors=True)

    profiler, model = TraceProfiler(tmp_path, **TWO), Model()
    fit(profiler, Remove(), model=model)
    assert (model.batches, profiler.traces) == (6, [])
    assert "No trace could be written" in caplog.text


def test_serves_several_fits_and_stops_once_in_each(tmp_path: Path) -> None:
    profiler = pickle.loads(pickle.dumps(TraceProfiler(tmp_path, active=3)))  # strategies that spawn pickle it
    for _ in range(2):
        fit(profiler, limit_train_batches=4)
        profiler.on_train_end()
        profiler.on_exception()
        profiler.teardown()
    assert written(profiler) == [[2, 3], [2, 3]]


@pytest.mark.parametrize("name", ["skip_first", "skip_first_wait", "wait", "warmup", "active", "repeat"])
def test_bad_numbers_are_named(tmp_path: Path, name: str) -> None:
    bad = 0 if name == "active" else -1
    with pytest.raises(ValueError, match=f"{name}={bad} "):
        TraceProfiler(tmp_path, **{name: bad})


PLUGIN = """
import sys
from torch_tb_profiler.io import Cache
from torch_tb_profiler.profiler.loader import RunLoader

if __name__ == "__main__":
    run = RunLoader("run", sys.argv[1], Cache()).load()
    for (worker, span), profile in sorted(run.profiles.items()):
        print(worker, span, *(row[0] for row in profile.overview["steps"]["rows"]))
"""


def test_the_tensorboard_plugin_reads_the_directory(tmp_path: Path) -> None:
    profiler = TraceProfiler(tmp_path / "traces", **TWO, repeat=2)
    fit(profiler, max_epochs=2)
    script = tmp_path / "plugin.py"
    script.write_text(PLUGIN)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", script, profiler.directory],
        env=os.environ | {"TORCH_PROFILER_START_METHOD": "fork"},  # a fifth of the time of "spawn"
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    worker = profiler.traces[0].name.rsplit(".", 5)[0]
    assert result.stdout.splitlines() == [f"{worker} 1 2 3", f"{worker} 2 6 7"]
