"""How long a run will take is told after its first steps."""

import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest
from lightning.pytorch.callbacks import Timer

from strobe.app.run import forecast


@pytest.mark.parametrize(
    ("limit", "validated", "told"),
    [
        (None, (50, 1), "About 3:48 of training left"),  # 95 steps of 2 s, and 30 batches validated after 50
        (None, (50, 2), "About 3:29 of training left"),
        (None, (10, 1), "About 6:20 of training left"),  # trainer.val_check_interval=0.2
        (None, (10, None), "About 6:20 of training left"),  # trainer.check_val_every_n_epoch=null
        (None, (math.inf, 1), "About 3:48 of training left"),
        (None, (None, 1), "About 4:26 of training left"),  # by the clock, every 50 s
        (60.0, (50, 1), "About 1:00 of training left"),
        (None, (50, 1), "About 3:48 of training left, then ceilings are measured (ceilings=false"),
    ],
)
def test_it_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: float | None,
    validated: tuple[float | None, int | None],
    told: str,
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
        val_check_batch=validated[0],
        enable_validation=True,
        _val_check_time_interval=None if validated[0] else 50.0,
        check_val_every_n_epoch=validated[1],
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=SimpleNamespace(current=done))),
    )
    callback = forecast.Forecast(ceilings="ceilings" in told)
    lengths = [30.0, 2.0, 9.0, 2.0, 2.0]  # the first takes long, and so does one that starts the profiler
    now = 0.0
    caplog.set_level(logging.INFO)
    for length in lengths * 2:
        now, done.ready = now + length, done.ready + 1
        monkeypatch.setattr(forecast.time, "monotonic", lambda now=now: now)
        callback.on_train_batch_end(trainer)
    (said,) = caplog.messages
    assert said.startswith(told)
