"""Copies and pickles that others make of what Strobe is attached to, during training and after it."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from torch.utils.data import DataLoader, TensorDataset

import strobe
from strobe import Strobe
from strobe.attach import place
from strobe.callbacks import MemoryProfiler, PythonProfiler, StepRecorder, TraceProfiler
from support.fitting import Standstill, fit, standstill
from support.watched import Loop, alone

__all__ = ["alone", "standstill"]

MADE: dict[str, Callable[[], Callback]] = {
    "Strobe": lambda: Strobe("here", report=False, trace={"wait": 0, "active": 20}),
    "StepRecorder": lambda: StepRecorder("steps.csv"),
    "MemoryProfiler": lambda: MemoryProfiler("memory", active=20),
    "PythonProfiler": lambda: PythonProfiler("python"),
    "TraceProfiler": lambda: TraceProfiler("traces", active=20),
}


@pytest.fixture(autouse=True)
def _(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(place, "_stopped", False)
    monkeypatch.chdir(tmp_path)


class Copying(Callback):
    """Copies the trainer and its callbacks in a step; what it has itself is not copied."""

    def on_train_batch_end(self, trainer: Any, model: Any, outputs: Any, batch: Any, number: int) -> None:
        if number == 4:
            self.trainer = copied(trainer)

    def __getstate__(self) -> dict[str, Any]:
        return {}


def copied(trainer: Trainer) -> Trainer:
    pickle.dumps(trainer)
    made: Trainer = copy.deepcopy(trainer)
    return made


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_trainer_and_its_callbacks_can_be_copied(made: Callable[[], Callback]) -> None:
    before = vars(made()).keys()
    trainer = fit(copying := Copying(), made())
    for one in (copying.trainer, copied(trainer)):
        (callback,) = (each for each in one.callbacks if type(each) is type(made()))
        assert {name for name in vars(callback) if name.startswith("on_")} == set()
        assert before <= vars(callback).keys()
        assert type(one.profiler).__name__ == "PassThroughProfiler"
        results: Any = one.fit_loop.epoch_loop._results
        assert results.log.__self__ is results
        one._signal_connector._sigterm_notifier_fn(15, None)
        assert one._signal_connector.received_sigterm
    assert not trainer._signal_connector.received_sigterm


def test_a_copy_records_a_training_of_its_own() -> None:
    fit(copying := Copying(), made := Strobe("here", report=False))
    (during,) = (one for one in copying.trainer.callbacks if isinstance(one, Strobe))
    for number, one in enumerate((during, pickle.loads(pickle.dumps(made)), copy.copy(made)), 2):
        assert (one.directory, one.report, one.place) == (Path("here"), False, None)
        fit(one)
        assert one.place == Path(f"here-{number}").absolute()
        assert (one.place / "summary.json").is_file()


@pytest.mark.usefixtures("alone")
def test_what_a_watched_loop_trains_can_be_copied(standstill: Standstill) -> None:
    loop, loader = Loop(standstill), DataLoader(TensorDataset(torch.randn(24, 8)), 4)
    watched = strobe.watch(loader, optimizer=loop.optimizer, directory="here")
    for number, batch in enumerate(watched):
        loop.step(batch)
        if number == 4:
            copies = [copy.deepcopy(one) for one in (loop.model, loop.optimizer, watched)]
            pickled = [pickle.loads(pickle.dumps(one)) for one in (loop.model, loader, watched)]
    assert [len(one) for one in (copies[2], *pickled[1:])] == [6, 6, 6]
    assert all(not one._post_accumulate_grad_hooks for model in (copies[0], pickled[0]) for one in model.parameters())
