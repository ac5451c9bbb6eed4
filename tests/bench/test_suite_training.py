"""suite=training: its rows are the document's way, all over the same images, and what follows from their figures."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from strobe.bench import steady as trainings
from strobe.bench.harness.trial import Report, measure
from strobe.bench.inputs import prepared
from strobe.bench.suites import training
from strobe.callbacks.tracefile import read_trace
from strobe.errors import ConfigError
from strobe.measure.timing import FEWEST_STEPS, Window
from strobe.present.parts import Table
from support.composing import bench_config
from support.suite_parts import TRAINED, declared, times_as_fast, trial_of
from support.suite_records import record_of

SMALL = ("quick=true", "threads=1", "turn_seconds=0.1", "suite.batch_size=8", "suite.workers=1", "suite.large_batch=16")


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has a GPU."""
    monkeypatch.setattr(training, "has_gpu", lambda: True)


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize(("quick", "workers", "large"), [("false", 8, 2048), ("true", 2, 128)])
def test_each_row_is_held_against_the_row_before(quick: str, workers: int, large: int) -> None:
    suite = declared("training", f"quick={quick}", "threads=3")
    names = ["batch 32, no workers", f"batch 32, {workers} workers", f"batch {large}, {workers} workers"]
    names += ["best known", "its model alone"]
    assert [(cell.table, cell.row) for cell in suite.cells] == [
        (device, row) for device in ("cpu", "gpu") for row in names
    ]
    assert [table.name for table in suite.tables] == ["cpu", "gpu"]
    for device in ("cpu", "gpu"):
        cells = [cell for cell in suite.cells if cell.table == device]
        first = None if device == "cpu" else suite.cells[0].name
        assert [cell.against for cell in cells] == [first, *(cell.name for cell in cells[:-1])]
        assert {cell.threads for cell in cells} == {3}


def test_the_best_overrides_are_the_users_and_without_a_gpu_it_is_the_cpu_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "has_gpu", lambda: False)
    cfg = bench_config("suite=training", "threads=3", 'suite.best=["engine=resident","threads=1"]')
    found = training.rows(cfg, "cpu")
    assert found["best known"][-2:] == ["engine=resident", "threads=1"]
    assert [(cell.table, cell.threads) for cell in training.declare(cfg).cells] == [("cpu", n) for n in (3, 3, 3, 1, 1)]


def test_all_rows_train_on_the_same_images_in_the_same_order(tmp_path: Path) -> None:
    trial = trial_of(tmp_path)
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for row, overrides in training.rows(bench_config("suite=training", *SMALL), "cpu").items():
        data, cfg = prepared([*trial.overrides, *overrides])
        assert not data.augments
        sizes, images, labels = [], [], []
        for pixels, targets in data.batches("train", cfg.data.batch_size, shuffle=True):
            sizes.append(len(targets))
            images.append(data.normalise(pixels).clone())
            labels.append(targets.clone())
        found[row] = torch.cat(images), torch.cat(labels)
        assert sizes[0] == (8 if row.startswith("batch 8") else 16)
    first, targets = found.pop("batch 8, no workers")
    assert len(found) == 3
    assert first.shape == (TRAINED, 3, 32, 32)
    for images, labels in found.values():
        torch.testing.assert_close(images, first, rtol=0, atol=1e-5)
        assert torch.equal(labels, targets)


def test_a_trial_times_a_training_and_the_first_one_leaves_traces(tmp_path: Path) -> None:
    cell = declared("training", "suite.devices=[cpu]", *SMALL).cells[0]
    for number in (1, 0):
        traces = sorted((tmp_path / "tensorboard").rglob("*.pt.trace.json.gz"))
        assert not traces
        with cell.make(trial_of(tmp_path, number)) as work:
            report = measure(cell, work, 0.0)
        figures = report.figures
        assert figures["steps"] >= FEWEST_STEPS
        assert report.images == [TRAINED]  # an epoch, however much was timed
        assert figures["epochs"] == pytest.approx(figures["timed_images"] / TRAINED)
        assert report.seconds[0] > 0
        phases = [value for name, value in figures.items() if name.startswith("step_") and name != "step_total"]
        assert sum(phases) == pytest.approx(figures["step_total"], rel=1e-3)
    folders = list((tmp_path / "tensorboard").iterdir())
    assert [folder.name for folder in folders] == ["cpu_batch_8_no_workers"]
    traces = sorted(folders[0].glob("*.pt.trace.json.gz"))
    steps = [
        {event["name"] for event in read_trace(trace)["traceEvents"] if event["name"].startswith("ProfilerStep#")}
        for trace in traces
    ]
    assert [len(each) for each in steps] == [3, 3]
    assert (tmp_path / "tables" / folders[0].name / "operators_by_cpu_time.csv").is_file()


def test_a_profile_that_fails_leaves_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no room for a trace")

    monkeypatch.setattr(trainings, "profile", fail)
    cell = declared("training", "suite.devices=[cpu]", *SMALL).cells[3]
    with cell.make(trial_of(tmp_path)) as work:
        report = measure(cell, work, 0.0)
    assert report.images == [TRAINED]
    assert "no room for a trace" in capfd.readouterr().err


def test_of_the_best_row_the_model_is_also_trained_alone(tmp_path: Path) -> None:
    cell = declared("training", "suite.devices=[cpu]", *SMALL).cells[-1]
    with cell.make(trial_of(tmp_path)) as work:
        report = measure(cell, work, 0.0)
    assert report.images == [TRAINED]
    assert report.seconds[0] > 0
    assert not list(tmp_path.rglob("*.pt.trace.json*"))


def reports(rate: float, epochs: float) -> list[Report]:
    figures = {"step_data_wait": 0.25, "step_forward": 0.5, "step_backward": 0.25, "step_total": 1.0}
    figures |= {"timed_images": 4500 * epochs, "epochs": epochs, "steps": 3.0}
    drawn = np.random.default_rng(0).normal(1, 0.01, 5)
    return [Report([4500 / (rate * factor)], [4500.0], None, figures) for factor in drawn]


def test_what_follows_names_each_change_and_whether_an_epoch_was_measured(tmp_path: Path) -> None:
    suite = declared("training", "suite.devices=[cpu]")
    names = [cell.name for cell in suite.cells]
    drawn = [reports(100, 1.0), reports(90, 0.4), reports(300, 2.0), reports(450, 1.0), reports(500, 1.0)]
    record = record_of(suite, dict(zip(names, drawn, strict=True)))
    told = training.conclude(record)
    assert told[0].startswith("All changes together, on the CPU: ")
    assert told[1].startswith("Best known, on the CPU: 0.90")
    assert told[1].endswith(" of what its model alone reaches.")
    assert [times_as_fast(one) for one in (told[0], *told[2:])] == pytest.approx([4.5, 0.9, 3.33, 1.5], abs=0.01)
    (section,) = training.sections(record, tmp_path)
    assert section.title == "Epochs and steps on the CPU"
    table, *bars = section.parts[1:]
    assert isinstance(table, Table)
    assert len(table.rows) == len(bars) == 4
    assert [row[2] for row in table.rows].count("extrapolated from 1,800 images") == 1
    assert re.search(
        r"batch 32, 8 workers: [\d.]+ \([\d. to]+\) s an epoch, extrapolated from 1,800 images", section.text
    )
    assert "data wait 25%" in section.text
    assert "range of the trials where these are fewer than 6" in repr(section.parts)
    assert "There are no traces." in repr(section.parts)
    place = tmp_path / "tensorboard" / "cpu_best_known"
    place.mkdir(parents=True)
    (place / "host.pt.trace.json.gz").touch()
    (section,) = training.sections(record, tmp_path)
    assert "profiler tab's Overview needs the internet" in repr(section.parts)
    assert "each row, but for batch 32, no workers and batch 32, 8 workers and batch 2048" in repr(section.parts)


@pytest.mark.usefixtures("both")
def test_a_gpu_is_held_against_the_cpu(tmp_path: Path) -> None:
    suite = declared("training")
    rates = zip(suite.cells, [100, 90, 300, 450, 500, 1000, 2000, 9000, 8000, 9500], strict=True)
    first, best = training.conclude(record_of(suite, {cell.name: reports(rate, 1.0) for cell, rate in rates}))[2:4]
    assert first.startswith("The GPU against the CPU, batch 32, no workers: 10")
    assert best.startswith(
        "From the CPU's first row, batch 32, no workers, to the GPU's fastest, batch 2048, 8 workers: 90"
    )


@pytest.mark.usefixtures("both")
def test_rows_that_failed_are_left_out(tmp_path: Path) -> None:
    suite = declared("training")
    first, second, *_ = suite.cells
    record = record_of(suite, {first.name: reports(100, 1.0), second.name: "a worker was <lost>"})
    assert training.conclude(record) == []
    assert [section.title for section in training.sections(record, tmp_path)] == ["Epochs and steps on the CPU"]


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
    _, window = trainings.begun(cfg, tmp_path, math.inf, most=5)  # less than an epoch of 23 steps
    calls = 1
    while not window.add(8):
        calls += 1
    assert calls - window.steps == 4 * (3 + 1)
    assert window.steps == 8
