"""Suite ``profiling``: every cell takes turns with what it watches, and each figure is told in a sentence."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.profilers import SimpleProfiler

from strobe.bench.harness.declare import Done, Input, Trial
from strobe.bench.harness.trial import Report, measure
from strobe.bench.suites.profiling import cells
from strobe.bench.suites.profiling import suite as profiling
from strobe.callbacks import PythonProfiler, StepRecorder
from support.suite_parts import NETWORK, declared
from support.suite_records import record_of

FIGURES = {"unwatched", "times", "cost"}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed besides."""
    monkeypatch.setattr(profiling, "find_spec", lambda name: None)


@pytest.fixture
def trial(sample_root: Path, tmp_path: Path) -> Trial:
    given = ("data=sample", f"data.root={sample_root}", "data.tiles_per_class=10", "data.batch_size=4")
    given += ("trainer.accelerator=cpu", NETWORK)
    return Trial(tmp_path, 0, given, Input("tiles"), tmp_path)


def watched(table: str, column: str, trial: Trial) -> Report:
    """What a trial of one cell finds."""
    cell = next(cell for cell in declared("profiling").cells if (cell.table, cell.column) == (table, column))
    with cell.make(trial) as work:
        return measure(cell, work, 0.0)


def sound(report: Report, *more: str) -> Mapping[str, float]:
    found = report.figures
    assert set(found) == FIGURES | set(more)
    assert found["times"] == pytest.approx((found["unwatched"] + found["cost"]) / found["unwatched"])
    assert report.seconds[0] > 0
    return found


def test_every_profiler_has_a_cell_and_tables_can_be_chosen() -> None:
    suite = declared("profiling", "data.batch_size=8")
    assert [table.name for table in suite.tables] == ["callbacks", "traces", "spans", "python"]
    assert [len([cell for cell in suite.cells if cell.table == table.name]) for table in suite.tables] == [5, 6, 2, 2]
    assert {cell.row for cell in suite.cells} == {"tiny step", "batch 8"}
    assert {cell.table for cell in declared("profiling", "suite.tables=[spans]").cells} == {"spans"}


def test_the_timers_of_others_are_measured_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "TraceML" not in {cell.column for cell in declared("profiling").cells}
    monkeypatch.setattr(profiling, "find_spec", lambda name: name == "traceml_ai")
    assert "TraceML" in {cell.column for cell in declared("profiling").cells}


def test_a_watched_step_is_held_against_an_unwatched_one_in_either_order() -> None:
    order: list[bool] = []

    def one(is_watched: bool) -> Done:
        order.append(is_watched)
        return Done(4, 0.3 if is_watched else 0.2, {"bytes": 1.0} if is_watched else {})

    numbers = iter(range(2))
    done = [cells.by_turns(one, numbers) for _ in range(2)]
    assert order == [False, True, True, False]
    assert done[0] == done[1]
    assert done[0].figures == pytest.approx({"unwatched": 0.2, "times": 1.5, "cost": 0.1, "bytes": 1.0})


@pytest.mark.parametrize(
    ("kind", "callback"),
    [("phase timers", StepRecorder), ("Strobe", cells.Attached), ("SimpleProfiler", SimpleProfiler)],
)
def test_a_callback_is_there_when_it_is_watched(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, kind: str, callback: type
) -> None:
    there: list[list[type]] = []
    step = cells.tiny_step
    monkeypatch.setattr(cells, "TINY", 0.02)
    monkeypatch.setattr(
        cells, "tiny_step", lambda *given: (there.append([type(one) for one in given]), step(*given))[1]
    )
    sound(watched("callbacks", kind, trial))
    assert there[:2] == [[], [callback]]


@pytest.mark.slow
def test_two_ranks_are_watched_and_not_watched_in_one_process_each(trial: Trial) -> None:
    sound(watched("callbacks", "Strobe, two ranks", trial))
    assert len((trial.scratch / "record" / "ranks" / "1.csv").read_text().splitlines()) > 1000


def test_a_trace_has_its_size_and_its_stall(trial: Trial) -> None:
    found = sound(watched("traces", "nothing more", trial), "bytes", "stall")
    assert found["bytes"] > 1000 > found["stall"] > 0


@pytest.mark.parametrize("recorded_too", [False, True])
def test_spans_are_recorded_or_not(trial: Trial, monkeypatch: pytest.MonkeyPatch, recorded_too: bool) -> None:
    switched: list[bool] = []
    switch = cells.SpanFolder.switch
    monkeypatch.setattr(cells.SpanFolder, "switch", lambda self, on: (switched.append(on), switch(self, on))[1])
    found = sound(watched("spans", "recorded" if recorded_too else "switched off", trial), "span", "share")
    assert 0 < found["span"] < 0.01
    assert found["share"] == pytest.approx(2 * 4 * found["span"] / (found["unwatched"] + found["cost"]))
    assert set(switched) == ({False, True} if recorded_too else {False})


def test_a_python_profile_changes_what_loading_seems_to_take(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def noted(*arguments: Any, **options: Any) -> PythonProfiler:
        made.append(options["kind"])
        return PythonProfiler(*arguments, **options)

    monkeypatch.setattr(cells, "PythonProfiler", noted)
    found = sound(watched("python", "events", trial), "share", "share_unwatched")
    assert made == ["events"]
    assert all(0 < found[name] < 1 for name in ("share", "share_unwatched"))


def test_every_figure_is_told() -> None:
    suite = declared("profiling")
    own = {"unwatched": 0.1, "times": 1.02, "cost": 0.00002}
    figures = {
        "callbacks": own,
        "traces": own | {"bytes": 300_000.0, "stall": 0.14},
        "spans": own | {"span": 1.2e-6, "share": 0.004},
        "python": own | {"share": 0.4, "share_unwatched": 0.35},
    }
    found = {cell.name: [Report([0.102], [32.0], None, figures[cell.table])] * 2 for cell in suite.cells}
    told = profiling.conclude(record_of(suite, found))
    assert told.pop() == "TraceML was not measured beside them: pip install traceml-ai, and it is."
    assert len(told) == len(suite.cells)
    assert told[0] == "The cost of phase timers is 20.0 µs a step, 0.020% of a training step of 100.0 ms."
    assert told[1].startswith("The cost of a trace that waits is 20.0 µs a step")
    assert told[5] == (
        "In a trace with nothing more, the time of a recorded step is 1.02 times a waiting one. A step adds 300 kB to "
        "it; the stall at the end of a cycle is 140 ms."
    )
    assert "With spans recorded, the time of loading is 1.02 times that with spans switched off. Two" in told[12]
    assert "loading seems to take 40.0% of a step, not 35.0%; the time of a step is 1.02 times" in told[14]
    assert profiling.conclude(record_of(suite, {})) == []


def test_a_figure_that_trials_disagree_about_is_not_told() -> None:
    suite = declared("profiling", "suite.tables=[callbacks]")
    costs = [1e-6, 2e-6, 9e-6] * 3
    trials = [Report([0.1], [32.0], None, {"unwatched": 0.1, "times": 1.0, "cost": cost}) for cost in costs]
    told = profiling.conclude(record_of(suite, {suite.cells[0].name: trials}))
    assert told[0] == (
        "The cost of phase timers is not known: 9 trials differ too much; more rounds, or a quiet machine, would tell."
    )
