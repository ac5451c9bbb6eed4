"""How long a run will take is told after its first steps."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from lightning.pytorch.callbacks import Timer
from omegaconf import OmegaConf

from strobe.app.run import forecast


@pytest.mark.parametrize(
    ("limit", "ceilings", "told"),
    [
        (None, False, ["About 3:48 of training left"]),  # 95 steps of 2 s, and 30 batches validated after 50
        (60.0, False, ["About 1:00 of training left"]),
        (None, True, ["About 3:48 of training left, then up to 2:12 to measure ceilings (ceilings=false leaves"]),
    ],
)
def test_it_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: float | None,
    ceilings: bool,
    told: list[str],
) -> None:
    timer = Timer()
    timer.time_remaining = lambda *_: limit  # type: ignore[method-assign]
    done = SimpleNamespace(ready=0)
    trainer: Any = SimpleNamespace(
        callbacks=[timer],
        max_epochs=2,
        current_epoch=0,
        max_steps=-1,
        global_step=0,
        accumulate_grad_batches=1,
        num_training_batches=50,
        num_val_batches=[30],
        check_val_every_n_epoch=1,
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=SimpleNamespace(current=done))),
    )
    callback = forecast.Forecast(OmegaConf.create({"ceilings_seconds": 5.0}), ceilings=ceilings)
    lengths = [30.0, 2.0, 9.0, 2.0, 2.0]  # the first takes long, and so does one that starts the profiler
    now = 0.0
    caplog.set_level(logging.INFO)
    for length in lengths * 2:
        now, done.ready = now + length, done.ready + 1
        monkeypatch.setattr(forecast.time, "monotonic", lambda now=now: now)
        callback.on_train_batch_end(trainer)
    assert [said[: len(line)] for said, line in zip(caplog.messages, told, strict=True)] == told
