"""What happens between the steps of real training runs, and which row of steps.csv records it."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from strobe.callbacks.steps import StepRecorder
from support.fitting import SAMPLES, SOME_VALIDATION, Model, Standstill, fit, standstill, trainer_with
from support.steps import column, recorder, seconds

__all__ = ["recorder", "standstill"]

NAP = 0.25


class Naps(Callback):
    """Naps in the given hooks."""

    def __init__(self, clock: Standstill, *hooks: str) -> None:
        self.clock = clock
        self.naps = 0
        for hook in hooks:
            setattr(self, hook, self.nap)

    def nap(self, *_: Any, **__: Any) -> None:
        self.clock.nap(NAP)
        self.naps += 1


@pytest.mark.parametrize(
    "hook",
    ["on_train_start", "on_train_epoch_start", "on_validation_start", "on_validation_end", "on_train_epoch_end"],
)
def test_what_lies_between_steps_is_in_none(recorder: StepRecorder, standstill: Standstill, hook: str) -> None:
    naps = Naps(standstill, hook)
    fit(recorder, naps, max_epochs=2, **SOME_VALIDATION | {"val_check_interval": 3})
    assert naps.naps > 0
    assert seconds(recorder, "total") == [0] * 12
    assert recorder.startup_seconds == pytest.approx(0 if hook == "on_train_epoch_end" else NAP)


def test_a_checkpoint_is_in_its_step_within_an_epoch_and_in_none_between_epochs(
    recorder: StepRecorder, standstill: Standstill, tmp_path: Path
) -> None:
    naps, between = Naps(standstill, "on_save_checkpoint"), ModelCheckpoint(tmp_path, save_on_train_epoch_end=True)
    fit(recorder, naps, between, max_epochs=2, enable_checkpointing=True)
    assert (naps.naps, sum(seconds(recorder, "total"))) == (2, 0)
    within = ModelCheckpoint(tmp_path / "within", every_n_train_steps=4)
    fit(recorder, Naps(standstill, "on_save_checkpoint"), within, enable_checkpointing=True)
    assert seconds(recorder, "callbacks") == pytest.approx([0, 0, 0, NAP, 0, 0])


@pytest.mark.filterwarnings("ignore:.*resuming from a checkpoint that ended before the epoch ended")
@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint need to be provided")
def test_a_resumed_run_counts_on(recorder: StepRecorder, standstill: Standstill, tmp_path: Path) -> None:
    checkpoint = ModelCheckpoint(tmp_path, "fourth", every_n_train_steps=4)
    fit(checkpoint, enable_checkpointing=True)
    naps = Naps(standstill, "on_train_start", "on_train_epoch_end")
    fit(recorder, naps, max_epochs=2, ckpt_path=tmp_path / "fourth.ckpt")
    assert (naps.naps, sum(seconds(recorder, "total"))) == (3, 0)
    assert recorder.startup_seconds == pytest.approx(NAP)  # without the rest of the epoch
    assert column(recorder, "step") == list(range(4, 12))
    assert column(recorder, "epoch") == [0, 0] + [1] * 6


@pytest.mark.parametrize(
    ("hook", "column", "steps"),
    [
        ("on_validation_start", None, []),
        ("on_validation_batch_start", "validation", [2, 5, 8, 11]),
        ("on_validation_epoch_end", "validation", [2, 5, 8, 11]),
        ("save", "checkpoints", [2, 5, 8, 11]),
        ("on_train_epoch_end", "between", [5, 11]),
        ("on_train_end", "between", [11]),
    ],
)
def test_what_follows_a_step_is_told_in_its_row(
    standstill: Standstill, tmp_path: Path, hook: str, column: str | None, steps: list[int]
) -> None:
    class Saves(ModelCheckpoint):
        def _save_checkpoint(self, *arguments: Any) -> None:
            standstill.nap(NAP if hook == "save" else 0)
            super()._save_checkpoint(*arguments)

    recorder = StepRecorder(tmp_path / "steps.csv")
    checkpoint = Saves(tmp_path / "checkpoints", save_on_train_epoch_end=False, save_top_k=-1, filename="{step}")
    settings = SOME_VALIDATION | {"val_check_interval": 3, "enable_checkpointing": True}
    fit(recorder, Naps(standstill, *([] if hook == "save" else [hook])), checkpoint, max_epochs=2, **settings)
    owners = ("validation", "checkpoints", "between")
    slept = {name: [step for step, value in enumerate(seconds(recorder, name)) if value >= NAP] for name in owners}
    if column is None:  # this hook runs before validation is timed
        assert slept["validation"] == []
    else:
        assert slept[column] == steps
        assert all(not found for name, found in slept.items() if name != column)


def test_workers_that_start_with_an_epoch_are_waited_for(recorder: StepRecorder, standstill: Standstill) -> None:
    class Starts(DataLoader[Any]):
        def __iter__(self) -> Any:
            standstill.nap(NAP)
            return super().__iter__()

    trainer_with(recorder, max_epochs=2).fit(Model(), Starts(SAMPLES, batch_size=4), DataLoader(SAMPLES))
    assert seconds(recorder, "data_wait") == pytest.approx([0] * 6 + [NAP] + [0] * 5)  # the first is before training
    assert sum(seconds(recorder, "other")) == 0


class Reports(Callback):
    """Naps where epochs begin and end, and in validation, which is nobody's alone."""

    def __init__(self, clock: Standstill) -> None:
        self.on_train_epoch_end = lambda *_: clock.nap(NAP)
        self.on_validation_epoch_end = lambda *_: clock.nap(NAP)


def test_what_takes_time_between_epochs_is_told_by_name(recorder: StepRecorder, standstill: Standstill) -> None:
    fit(recorder, Reports(standstill), max_epochs=2, limit_val_batches=1)
    ends = [0, 0, 0, 0, 0, NAP] * 2
    assert seconds(recorder, "after/Reports") == pytest.approx(ends)
    assert seconds(recorder, "between") == pytest.approx(ends)
    assert seconds(recorder, "validation") == pytest.approx(ends)
