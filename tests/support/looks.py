"""Looks at lines so often that short tests are seen."""

from collections.abc import Callable
from typing import Any

import pytest
from lightning.pytorch import Callback, LightningModule, Trainer

from strobe.callbacks import lines, threads
from strobe.callbacks.steps import StepRecorder

Records = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all tests of a module that imports it."""
    monkeypatch.setattr(lines, "EVERY", 0.001)
    monkeypatch.setattr(lines, "MOST", 1_000_000)
    monkeypatch.setattr(lines, "KEEP", 4)
    monkeypatch.setattr(threads, "EVERY", 0.0)


class Until(Callback):
    """Ends training once the records of its lines are ``enough``: on a busy machine that takes more steps."""

    def __init__(self, recorder: StepRecorder, enough: Callable[[Records], bool]) -> None:
        self.recorder, self.enough = recorder, enough

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        assert self.recorder.step_log is not None
        trainer.should_stop = self.enough(self.recorder.step_log.threads.lines())
