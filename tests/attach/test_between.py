"""How often a Trainer validates and saves, told beforehand, against what Lightning does."""

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from torch.utils.data import DataLoader

from strobe.attach.between import CHECKPOINTS, VALIDATION, Pauses, count_pauses
from strobe.diagnose.symptoms import of_an_epoch
from strobe.probe.takeover import validation_cycle
from strobe.records.run import Record

BATCHES, EPOCHS = 12, 4
BY_BATCHES = {"check_val_every_n_epoch": None}


class Counting(Callback):
    """Counts validations, and tells beforehand how many there will be."""

    def __init__(self) -> None:
        self.validated: list[int] = []  # steps after which it was
        self.told, self.pauses = dict[str, float](), Pauses()
        self.cycle: tuple[int, float] | None = None

    def setup(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        self.pauses.note(trainer)

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        self.pauses.limits(trainer)
        self.cycle = validation_cycle(trainer, trainer.num_training_batches)
        often = self.pauses.often(trainer, trainer.num_training_batches, 1.0)
        self.told = {name: round(each * BATCHES * EPOCHS, 6) for name, each in often.items()}

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        if not trainer.sanity_checking:
            self.validated.append(trainer.fit_loop.total_batch_idx + 1)


def fitted(saving: dict[str, Any], settings: dict[str, Any], folder: Path) -> tuple[Counting, list[int]]:
    """The callback of a training, and the steps after which it saved."""
    saved: list[int] = []

    class Saving(ModelCheckpoint):
        def _save_checkpoint(self, trainer: Trainer, filepath: str) -> None:
            saved.append(trainer.global_step)
            super()._save_checkpoint(trainer, filepath)

    counting = Counting()
    trainer = Trainer(
        **{"max_epochs": EPOCHS} | settings,
        callbacks=[counting, Saving(folder, **saving)],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model, data = BoringModel(), torch.rand(BATCHES, 32)
    model.val_dataloader = lambda: DataLoader(data[:2])  # type: ignore[method-assign]
    trainer.fit(model, DataLoader(data))
    return counting, saved


@pytest.mark.parametrize(
    ("saving", "settings"),
    [
        ({}, {}),
        ({"every_n_epochs": 2}, {"check_val_every_n_epoch": 4}),
        ({"every_n_epochs": 2, "save_top_k": -1}, {"check_val_every_n_epoch": 2, "val_check_interval": 0.25}),
        ({}, {"val_check_interval": 0.3}),
        ({"every_n_train_steps": 3}, {"val_check_interval": 5}),
        ({"every_n_train_steps": 2}, {"accumulate_grad_batches": 2, "limit_val_batches": 0}),
        (
            {"every_n_epochs": 2, "save_on_train_epoch_end": True},
            {"val_check_interval": 16, "check_val_every_n_epoch": None},
        ),
        ({}, {"val_check_interval": 6, **BY_BATCHES}),
        ({"save_top_k": 0}, {"check_val_every_n_epoch": 10}),
        ({"every_n_train_steps": 4, "save_last": True}, {}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_pauses_are_told_before_they_come(saving: dict[str, Any], settings: dict[str, Any], tmp_path: Path) -> None:
    counting, saved = fitted(saving, settings, tmp_path)
    assert counting.told == {VALIDATION: len(counting.validated), CHECKPOINTS: len(saved)}


@pytest.mark.parametrize(
    ("settings", "cycle"),
    [
        ({}, (1, 12)),
        ({"val_check_interval": 0.3}, (1, 3)),
        ({"val_check_interval": 5}, (2, 12)),
        ({"val_check_interval": 4, "check_val_every_n_epoch": 2}, (3, 24)),
        ({"val_check_interval": 16, **BY_BATCHES}, (1, 16)),
        ({"limit_val_batches": 0}, None),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_validations_repeat_themselves_after_a_cycle(
    settings: dict[str, Any], cycle: tuple[int, float] | None, tmp_path: Path
) -> None:
    counting, _ = fitted({}, settings, tmp_path)
    assert counting.cycle == cycle
    number, steps = cycle or (0, BATCHES)
    for cycles in range(int(BATCHES * EPOCHS // steps) + 1):
        assert sum(step <= cycles * steps for step in counting.validated) == cycles * number


@pytest.mark.parametrize(
    ("saving", "settings"),
    [
        ({"monitor": "loss"}, {"check_val_every_n_epoch": 9}),  # which may never improve; and a run too short
        ({"every_n_train_steps": 9, "save_top_k": 1}, {"max_epochs": -1, "max_steps": 6, "check_val_every_n_epoch": 2}),
        ({}, {"fast_dev_run": True}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_never_comes_is_not_counted(saving: dict[str, Any], settings: dict[str, Any], tmp_path: Path) -> None:
    told = fitted(saving, settings, tmp_path)[0].told
    assert told[CHECKPOINTS] == 0
    assert settings.get("fast_dev_run") or told[VALIDATION] == 0


def test_pauses_by_the_clock_depend_on_the_steps() -> None:
    class Timed:
        enable_validation, check_val_every_n_epoch, val_check_batch, _val_check_time_interval = True, 1, None, 30.0

    pauses = Pauses(checkpoints=[ModelCheckpoint(train_time_interval=timedelta(minutes=1))])
    assert pauses.often(Timed(), 10, 0.5) == {VALIDATION: 0.5 / 30, CHECKPOINTS: 0.5 / 60}


def test_a_record_tells_of_a_training_that_pauses() -> None:
    summary: dict[str, Any] = {
        "ceilings": {"between": {VALIDATION: 0.3}},
        "between_seconds": {VALIDATION: 0.0, CHECKPOINTS: None, "between": 0.0},
        "step_seconds": {"total": 0.1},
        "overall_images_per_second": 80.0,
        "steps": {"measured": 5},
        "batches_per_epoch": 50,
    }
    count_pauses(summary)
    assert math.isclose(summary["overall_images_per_second"], 20.0)
    assert summary["between_seconds"][VALIDATION] == 0.3
    record = Record(summary)
    assert of_an_epoch(record, VALIDATION) == 1.0
