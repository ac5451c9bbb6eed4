"""suite=overhead: its cells train the same, with what their names say around it, and what follows from their rates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.bench import steady as trainings
from strobe.bench.harness.declare import Cell, Suite
from strobe.bench.harness.trial import Report, measure
from strobe.bench.suites import overhead
from strobe.bench.suites.overhead import APPLICATION, PLAIN, RECORDING, UNTIMED, WAITING
from strobe.callbacks import StepRecorder, TraceProfiler
from support.suite_parts import declared, times_as_fast, trial_of
from support.suite_records import record_of


def cell_of(suite: Suite, variant: str) -> Cell:
    return next(cell for cell in suite.cells if cell.column == variant)


def test_every_way_of_training_is_held_against_the_plain_loop() -> None:
    suite = declared("overhead", "threads=1", "data.batch_size=8")
    assert [cell.column for cell in suite.cells] == [PLAIN, APPLICATION, UNTIMED, WAITING, RECORDING]
    plain, *others = suite.cells
    assert plain.against is None
    assert {cell.against for cell in others} == {plain.name}
    assert {(cell.row, cell.threads) for cell in suite.cells} == {("batch 8", 1)}


@pytest.mark.parametrize(
    "given",
    [
        ("model.optimizer=sgd", "model.momentum=0.5", "model.weight_decay=0.1", "trainer.precision=bf16-mixed"),
        ("model.label_smoothing=0.2", "model.channels_last=true", "model.optimizer=adamw", "model.fused=true"),
    ],
)
def test_all_train_the_same_steps_and_have_around_them_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    monkeypatch.setattr(overhead, "MOST", 4)
    suite = declared("overhead", "threads=1", "quick=true", "turn_seconds=1000", "data.batch_size=8")
    losses: dict[str, list[float]] = {}
    around: dict[str, set[type]] = {}
    recording: dict[str, list[bool]] = {}
    variant = ""
    common = ("data.batch_size=8", "data.augment=false", "logger=csv")
    entropy, watched = trainings.F.cross_entropy, trainings.Stepping.on_train_batch_end

    def noted(logits: Tensor, labels: Tensor, **options: Any) -> Tensor:
        loss = entropy(logits, labels, **options)
        losses.setdefault(variant, []).append(loss.item())
        return loss

    def seen(self: trainings.Stepping, trainer: Any, *arguments: Any) -> None:
        around[variant] = {type(callback) for callback in trainer.callbacks}
        state = [callback.recording for callback in trainer.callbacks if isinstance(callback, TraceProfiler)]
        recording.setdefault(variant, []).extend(state)
        watched(self, trainer, *arguments)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", noted)
    monkeypatch.setattr(trainings.Stepping, "on_train_batch_end", seen)
    for cell in suite.cells:
        variant = cell.column
        with cell.make(trial_of(tmp_path, 0, *common, *given)) as work:
            report = measure(cell, work, 0.0)
        assert report.images == [8]  # a step, however many were timed
        assert report.figures == {"steps": 4}
        assert report.seconds[0] > 0
    first = losses[PLAIN]
    assert len(first) == 3 + 4  # steps of the warm-up, and timed ones
    assert all(found == pytest.approx(first, rel=1e-4) for found in losses.values())
    assert set(around) == {APPLICATION, UNTIMED, WAITING, RECORDING}
    assert around[UNTIMED] == around[APPLICATION] - {StepRecorder}
    assert around[WAITING] == around[RECORDING] == around[APPLICATION] | {TraceProfiler}
    assert recording[WAITING] == [False] * 7
    assert recording[RECORDING][3:] == [True] * 4


def reports(rates: list[float]) -> list[Report]:
    return [Report([100 / rate], [100.0], None, {"steps": 3.0}) for rate in rates]


def conclusions(rates: Mapping[str, list[float] | str]) -> list[str]:
    suite = declared("overhead", "threads=1")
    found = {
        cell_of(suite, name).name: value if isinstance(value, str) else reports(value) for name, value in rates.items()
    }
    assert suite.conclude is not None
    return suite.conclude(record_of(suite, found))


def test_a_difference_is_told_apart_from_none() -> None:
    steady = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0, 100.0]
    told = conclusions(
        {
            PLAIN: steady,
            APPLICATION: [rate * 0.9 for rate in steady],
            UNTIMED: [rate * factor for rate, factor in zip(steady, [0.88, 0.92] * 3 + [0.9], strict=True)],
            WAITING: [rate * 0.9 for rate in steady],
            RECORDING: [rate * 0.45 for rate in steady],
        }
    )
    assert len(told) == 4
    assert [times_as_fast(sentence) for sentence in told] == pytest.approx([0.9, 1.0, 1.0, 0.5], abs=0.03)
    assert "a step takes 11.1% longer" in told[0]
    assert "no measurable difference" in told[1]
    assert "a step takes 100.0% longer" in told[3]


def test_what_was_not_measured_is_named_and_few_rounds_tell_no_difference() -> None:
    told = conclusions({PLAIN: [100.0], APPLICATION: [90.0], UNTIMED: "no room", WAITING: [90.0]})
    assert "too few trials to tell" in told[0]
    assert told[1] == f"Phase timers on against off: not known, as {UNTIMED} was not measured."
    assert told[3].endswith(f"as {RECORDING} was not measured.")
