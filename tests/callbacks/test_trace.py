"""Traces of real training runs, read back from their files."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.profiler import record_function

from strobe.callbacks.trace import TraceProfiler
from support.fitting import SOME_VALIDATION, Model, Stream, fit
from support.traces import TWO, in_steps, written

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup"),
]

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
AT_ONCE = {"wait": 0, "warmup": 0, "active": 2}


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


def test_a_bad_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="active=0 "):
        TraceProfiler(tmp_path, active=0)
