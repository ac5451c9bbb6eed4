"""Which steps of a training are timed, and what is told of them."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from strobe.app.build.instantiate import build
from strobe.bench import steady as trainings
from strobe.errors import ConfigError
from strobe.measure import window as windows
from support.suite_parts import bench_config, trial_of

pytestmark = pytest.mark.usefixtures("own_hydra")


def test_phases_are_those_of_the_timed_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = [100.0, 50.0, 20.0, 3.0, 2.0, 1.0]  # of which the last three were timed
    path = tmp_path / "steps.csv"
    path.write_text("step,total,data_wait\n" + "".join(f"{step},{wait},{wait}\n" for step, wait in enumerate(waits)))
    window = trainings.Window(1.0, warmup=1, epoch=30, most=3)
    for _ in range(4):
        window.add(10)
    monkeypatch.setattr(trainings, "apply", lambda *_: window)
    done = trainings.with_phases(bench_config("suite=training"), tmp_path, 1.0)
    assert done.figures["step_data_wait"] == done.figures["step_total"] == pytest.approx(2.0)
    assert (done.images, done.figures["timed_images"], done.seconds) == (30, 30, pytest.approx(window.seconds))


class Ending(Callback):
    """Ends training after its first step."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        trainer.should_stop = True


def test_a_training_that_ends_before_its_measurement_is_an_error(tmp_path: Path) -> None:
    cfg = trainings.ready(trial_of(tmp_path).overrides)
    with pytest.raises(ConfigError, match="training ended by itself after 0 timed steps"):
        trainings.apply(cfg, tmp_path, 0.1, Ending())


def test_workers_are_warm_after_a_wave_and_timed_in_whole_turns(tmp_path: Path) -> None:
    overrides = [*trial_of(tmp_path).overrides, "engine.num_workers=4", "engine.prefetch_factor=3"]
    cfg = trainings.ready(overrides)
    window = trainings.window_of(cfg, build(cfg, tmp_path), math.inf, most=5)  # less than an epoch of 23 steps
    calls = 1
    while not window.add(8):
        calls += 1
    assert calls - window.steps == 4 * (3 + 1)
    assert window.steps == 8


def test_a_warm_up_does_not_take_for_ever() -> None:
    window = trainings.Window(0.0, warmup=100)
    ended = [window.add(8) for _ in range(6)]
    assert ended == [False] * 5 + [True]


class Time:
    """Passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "multiple", "epoch", "most", "steps"),
    [
        (10.0, 1, 0, math.inf, 10),  # until the time is up
        (1.0, 1, 0, math.inf, 3),  # three steps in any case
        (10.0, 1, 0, 5, 5),  # no more than that
        (10.0, 1, 32, math.inf, 8),  # two epochs of four steps, for a third does not fit
        (10.0, 1, 160, math.inf, 10),  # no whole epoch fits
        (10.0, 4, 0, math.inf, 12),  # as many batches of each worker
        (10.0, 4, 0, 5, 8),
    ],
)
def test_a_window_ends_with_the_time_or_with_an_epoch(
    monkeypatch: pytest.MonkeyPatch, *, seconds: float, multiple: int, epoch: int, most: float, steps: int
) -> None:
    time = Time()
    monkeypatch.setattr(windows, "time", SimpleNamespace(perf_counter=time.perf_counter))
    window = windows.Window(seconds, multiple=multiple, epoch=epoch, most=most, clock=time.perf_counter)
    calls = 1
    while not window.add(8):
        calls += 1
        time.now += 1
    assert (calls - window.steps, window.steps, window.images) == (3, steps, 8 * steps)
    assert window.seconds == pytest.approx(steps)
