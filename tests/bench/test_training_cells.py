"""Which steps of a measured training are timed, and what is told of them."""

import math
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from strobe.app.build.instantiate import build
from strobe.bench import steady as trainings
from strobe.errors import ConfigError
from strobe.measure.timing import Window
from support.composing import bench_config
from support.suite_parts import trial_of


def test_phases_are_those_of_the_timed_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = [100.0, 50.0, 20.0, 3.0, 2.0, 1.0]  # of which the last three were timed
    path = tmp_path / "steps.csv"
    path.write_text("step,total,data_wait\n" + "".join(f"{step},{wait},{wait}\n" for step, wait in enumerate(waits)))
    window = Window(1.0, warmup=1, epoch=30, most=3)
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
