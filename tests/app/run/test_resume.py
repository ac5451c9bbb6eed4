"""An interrupted run that is resumed ends exactly where an uninterrupted one does."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.app.model.classifier import ImageClassifier
from support.runs import CHECKPOINTS, Ended

Train = Callable[..., Ended]

SETTINGS = (
    "trainer.max_epochs=3",
    "trainer.limit_train_batches=3",
    "model.scheduler=one_cycle",
    CHECKPOINTS,
)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have a run send itself a signal in the middle of a step, counted from 0; None: no more."""
    original = ImageClassifier.training_step

    def at(step: int | None, number: int = signal.SIGINT) -> None:
        def training_step(self: ImageClassifier, batch: Any, batch_idx: int) -> Tensor:
            if self.trainer.global_step == step:
                os.kill(os.getpid(), number)
            return original(self, batch, batch_idx)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        monkeypatch.setattr(ImageClassifier, "training_step", training_step)

    return at


def weights(directory: Path) -> dict[str, Any]:
    state = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)
    optimizer = state["optimizer_states"][0]["state"]
    return state["state_dict"] | {f"moment {key}": value["exp_avg"] for key, value in optimizer.items()}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@dataclass
class Whole:
    """What an uninterrupted run ended with; filled by the first test that asks."""

    best: Path
    weights: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole") / "best.ckpt")


@pytest.fixture
def uninterrupted(train: Train, _whole: Whole) -> Whole:
    if not _whole.weights:
        ended = train(*SETTINGS, name="whole")
        assert ended.code == 0, ended.output
        _whole.weights = weights(ended.directory)
        (ended.directory / "checkpoints" / "best.ckpt").rename(_whole.best)
    return _whole


@pytest.mark.parametrize(
    ("step", "settings"),
    [
        (4, []),
        (5, ["checkpoint.every_n_steps=2", "engine.num_workers=2"]),
        pytest.param(3, ["engine.num_workers=2"], marks=pytest.mark.slow),
        pytest.param(7, ["checkpoint.every_n_steps=3"], marks=pytest.mark.slow),
    ],
    ids=["mid-epoch", "saved mid-epoch, workers", "first step, workers", "saved at an epoch's end"],
)
def test_ctrl_c_and_resume(
    train: Train, uninterrupted: Whole, interrupt: Callable[[int | None], None], step: int, settings: list[str]
) -> None:
    interrupt(step)
    broken = train(*SETTINGS, *settings, name="run")
    assert broken.code == 130
    assert "Traceback" not in broken.output
    assert broken.summary["status"] == "interrupted"
    interrupt(None)
    resumed = train(*SETTINGS, *settings, "ckpt_path=last", name="run")
    assert resumed.code == 0, resumed.output
    assert resumed.summary["status"] == "completed"
    assert_same(weights(resumed.directory), uninterrupted.weights)


def test_from_the_best_checkpoint(train: Train, uninterrupted: Whole) -> None:
    """It is saved before the epoch that it belongs to has ended."""
    resumed = train(*SETTINGS, f"ckpt_path={uninterrupted.best}")
    assert resumed.code == 0, resumed.output
    assert_same(weights(resumed.directory), uninterrupted.weights)
