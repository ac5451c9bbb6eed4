"""A Trainer's ``fit`` that ends before its first step: what is said of it."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback
from torch.utils.data import DataLoader

from strobe import Strobe
from strobe.attach import place
from strobe.records.run import read_summary
from support.fitting import SAMPLES, Model, fit, trainer_with


@pytest.fixture(autouse=True)
def _(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(place, "_stopped", False)
    monkeypatch.chdir(tmp_path)


def test_a_training_that_is_stopped_before_its_first_step_says_so() -> None:
    class Stopping(Callback):
        def on_train_start(self, trainer: Any, *_: Any) -> None:
            trainer.should_stop = True

    fit(Stopping(), Strobe("here", report=False))
    verdict = read_summary(Path("here/summary.json"))["verdict"]
    assert verdict == "No step was measured: training was ended before its first step."


@pytest.mark.parametrize("where", ["setup", "configure_optimizers", "on_fit_start"])
def test_an_error_before_training_is_told_where_it_leaves_no_record(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Model):
        pass

    def fails(*_: Any, **__: Any) -> None:
        raise ArithmeticError

    fit(first := Strobe("here", report=False))
    setattr(Broken, where, fails)
    with pytest.raises(ArithmeticError):
        fit(first, Strobe("there"), model=Broken())
    told = "Strobe has no record of this training: ArithmeticError ended it before it began."
    assert capsys.readouterr().err.count(told) == (where != "on_fit_start")  # the module's comes after Strobe's
    assert not Path("there").exists()


def test_an_error_of_a_validation_or_after_training_is_not_told_as_one_of_a_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken(Model):
        def validation_step(self, *_: Any) -> None:
            raise ArithmeticError

        def teardown(self, stage: str) -> None:
            if stage == "fit":
                raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fit(strobe := Strobe("here", report=False), model=Broken())
    trainer = trainer_with(strobe, Strobe("there"), limit_val_batches=1)
    with pytest.raises(ArithmeticError):
        trainer.validate(Broken(), DataLoader(SAMPLES))
    assert "has no record" not in capsys.readouterr().err
