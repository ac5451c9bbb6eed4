"""An interrupted run that is resumed ends exactly where an uninterrupted one does."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from support.interruptions import before_each_step
from support.runs import ALL, CHECKPOINTS, QUICK, Train, trained

SETTINGS = (
    "trainer.max_epochs=3",
    "trainer.limit_train_batches=3",
    "model.scheduler=one_cycle",
    CHECKPOINTS,
)


Whole = tuple[Path, dict[str, Any]]  # a folder of checkpoints, and weights


def weights(directory: Path) -> dict[str, Any]:
    state = torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)
    optimizer = state["optimizer_states"][0]["state"]
    return state["state_dict"] | {f"moment {key}": value["exp_avg"] for key, value in optimizer.items()}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, sample_root: Path) -> Whole:
    """What a run that was left alone ended with: its folder of checkpoints, and weights."""
    ended = trained(tmp_path_factory.mktemp("whole"), *SETTINGS, ALL, defaults=QUICK, data_root=sample_root)
    assert ended.code == 0, ended.output
    return ended.directory / "checkpoints", weights(ended.directory)


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
    train: Train,
    uninterrupted: Whole,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    settings: list[str],
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        before_each_step(patch, lambda model, _: model.global_step == step and os.kill(os.getpid(), signal.SIGINT))
        broken = train(*SETTINGS, *settings, name="run")
    assert broken.code == 130
    assert "Traceback" not in broken.output
    assert broken.summary["status"] == "interrupted"
    resumed = train(*SETTINGS, *settings, "ckpt_path=last", name="run")
    assert resumed.code == 0, resumed.output
    assert resumed.summary["status"] == "completed"
    assert_same(weights(resumed.directory), uninterrupted[1])


def test_from_the_best_checkpoint(train: Train, uninterrupted: Whole) -> None:
    """It is saved before the epoch that it belongs to has ended."""
    resumed = train(*SETTINGS, f"ckpt_path={uninterrupted[0] / 'best.ckpt'}")
    assert resumed.code == 0, resumed.output
    assert_same(weights(resumed.directory), uninterrupted[1])
