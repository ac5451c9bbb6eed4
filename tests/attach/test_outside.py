"""What a script does outside of its trainings: the calls that no training makes."""

import time
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from strobe import Strobe
from strobe.attach import outside
from support.fitting import SAMPLES, Model, trainer_with


@pytest.fixture(autouse=True)
def _(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_trained": [], "_ours": [], "EVERY": 0.02, "LEAST": 0.1, "NOTABLE": 0.01}.items():
        monkeypatch.setattr(outside, name, value)
    monkeypatch.chdir(tmp_path)


def evaluate() -> None:
    for _ in range(10):
        time.sleep(0.05)


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_script_with_a_trainer_does_beside_fit_is_told(fails: bool) -> None:
    """Whatever ends the training."""
    looks, model, loader = outside.StackSampler(), Model(fail_at=4 if fails else -1), DataLoader(SAMPLES, 4)
    try:
        trainer_with(Strobe("here"), max_epochs=1).fit(model, loader, loader)
    except ArithmeticError:
        assert fails
    evaluate()
    sentence = looks.told()
    assert "(`evaluate()`)" in sentence
    assert sentence.startswith("Outside of training, this script spent ")
    assert len(outside._trained) == 1
    assert len(outside._ours) == 2  # as it begins and ends
    assert looks.told() == sentence  # it looks no more


def test_nothing_is_told_where_nothing_was_trained_or_little_else_was_done() -> None:
    looks = outside.StackSampler()
    evaluate()
    assert not looks.told()
    outside.trained(looks._began, time.monotonic())
    assert not looks.told()


def test_of_very_many_looks_every_second_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "EVERY", 0.001)
    monkeypatch.setattr(outside, "MOST", 16)
    looks = outside.StackSampler()
    evaluate()
    looks.stop()
    assert looks._every >= 0.002
    assert 4 <= len(looks._seen) <= 16
