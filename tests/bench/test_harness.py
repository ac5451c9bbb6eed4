"""Cells are measured in fresh processes, in random order, until it is enough; what goes wrong stays in the record."""

import json
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strobe.bench.harness.declare import Cell, slug
from strobe.bench.harness.results import Results, failures, median_rate
from strobe.bench.harness.schedule import Campaign, Settings
from strobe.bench.harness.trial import run_trial
from strobe.errors import ConfigError
from strobe.measure.pagecache import evict, resident
from support.processes import living, wait_for
from support.refusals import refusal
from support.tiny_cells import FOUND, HEADER, broken, cell, counting, leaving, measured, quick, reading, suite


def of(results: Results, row: str) -> dict:
    return next(entry for entry in results.record("completed")["cells"] if entry["row"] == row)


def test_each_trial_is_a_process_of_its_own(tmp_path: Path) -> None:
    results, _ = measured(tmp_path, cell("a"), cell("b"), rounds=2, run=run_trial)
    pids = [trial["figures"]["pid"] for row in "ab" for trial in of(results, row)["visits"]]
    sessions = [trial["figures"]["session"] for row in "ab" for trial in of(results, row)["visits"]]
    assert len(set(pids)) == len(pids) == 4, results.errors
    assert os.getpid() not in pids
    assert pids == sessions  # so that all that a cell starts can be ended with it
    assert not list((tmp_path / "cells").iterdir())


def test_rounds_come_in_other_orders_and_skip_nobody(tmp_path: Path) -> None:
    rows = "abcde"
    _, journal = measured(tmp_path, *map(cell, rows), rounds=3)
    rounds = [[row for row, number in journal.begun if number == wanted] for wanted in range(3)]
    assert [row for row, _ in journal.begun] == [row for order in rounds for row in order]
    assert all(sorted(order) == list(rows) for order in rounds)
    assert len({tuple(order) for order in rounds}) > 1


def test_a_trial_warms_up_repeats_and_closes(tmp_path: Path) -> None:
    results, _ = measured(tmp_path, cell("a", counting, seconds=0.02), turn=0.25, rounds=2)
    lines = (tmp_path / "cells" / slug(of(results, "a")["name"]) / "journal").read_text().splitlines()
    for number in ("0", "1"):
        words = [line.partition(" ")[2] for line in lines if line.startswith(number)]
        assert words[0] == "warm up"
        assert words[-1] == "close"
        assert words.count("repeat") == len(words) - 2 >= 2
    found = of(results, "a")
    assert found["images"] == 3
    assert found["repetitions"] == sum(line.endswith("repeat") for line in lines)
    assert found["seconds"]["median"] >= 0.02


@pytest.mark.parametrize("make", [counting, quick])
def test_quick_repetitions_are_timed_together_unless_they_time_themselves(tmp_path: Path, make: Any) -> None:
    results, _ = measured(tmp_path, cell("a", make), turn=0.05, rounds=3)
    trials = of(results, "a")["visits"]
    together = [trial["repetitions"] > len(trial["seconds"]) for trial in trials]
    assert any(together) if make is counting else not any(together)  # a busy machine makes one or the other not quick
    assert any(len(trial["seconds"]) > 1 for trial in trials) or make is counting


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("user", "data.root=nowhere is not a folder; give another"),
        ("ours", "ValueError: a mistake of ours"),
        ("exit", "ended with code 7"),
        ("orphan", "ended with code 7"),
        ("killed", "ended by SIGKILL, for example because memory ran out"),
        ("hangs", "took more than 3 s; timeout_seconds=N"),
    ],
)
def test_what_goes_wrong_is_a_row(tmp_path: Path, how: str, said: str) -> None:
    results, journal = measured(
        tmp_path, cell("bad", broken, how=how), cell("good"), timeout=3.0 if how == "hangs" else 60.0, run=run_trial
    )
    bad, good = of(results, "bad"), of(results, "good")
    assert said in bad["error"]
    assert "\n" not in bad["error"]
    assert (bad["status"], good["status"]) == ("failed", "measured")
    assert len(good["visits"]) == 2
    assert [row for row, _ in journal.begun].count("bad") == 1
    output = tmp_path / "cells" / slug(bad["name"]) / "output.txt"
    assert output.exists() is (how != "user")
    if how == "ours":
        assert "Traceback" in output.read_text()


def test_no_process_stays_behind(tmp_path: Path) -> None:
    results, _ = measured(tmp_path, cell("a", leaving), rounds=1, run=run_trial)
    child = int((tmp_path / "cells" / slug(of(results, "a")["name"]) / "child").read_text())
    assert wait_for(lambda: not living({child}))


def test_without_time_each_cell_is_measured_once_and_the_record_says_so(tmp_path: Path) -> None:
    results, journal = measured(tmp_path, cell("a"), cell("b"), rounds=5, budget=0.0)
    assert sorted(journal.begun) == [("a", 0), ("b", 0)]
    assert results.seconds > 0
    assert results.record("completed")["budget_spent"]
    enough, journal = measured(tmp_path, *map(cell, "abc"), rounds=3)
    assert not enough.record("completed")["budget_spent"]
    assert journal.left[0] > journal.left[-1] >= 0


def test_a_cell_that_is_known_well_is_measured_no_more(tmp_path: Path) -> None:
    results, _ = measured(tmp_path, cell("a"), cell("b", seconds=0.5, drift=0.2), rounds=7, precision=0.05)
    assert len(of(results, "a")["visits"]) == 6
    assert len(of(results, "b")["visits"]) == 7


@pytest.mark.parametrize("noise", [0.014, 0.03])
def test_the_interval_of_a_cell_that_ended_early_holds_the_truth_as_often_as_it_says(
    tmp_path: Path, noise: float
) -> None:
    settings = Settings(rounds=30, turn=0.0, budget=60.0, precision=0.02, timeout=60.0, seed=0)
    campaign = Campaign(Results(suite(), HEADER), settings, FOUND, (), tmp_path)
    random, held = np.random.default_rng(1), 0
    for _ in range(400):
        trials: list[dict[str, Any]] = []
        while len(trials) < settings.rounds and not campaign._is_known(trials):
            trials.append({"images": [10], "seconds": [float(np.exp(noise * random.standard_normal()))]})
        rate = median_rate(trials)
        assert rate is not None
        held += rate.low is not None and rate.high is not None and rate.low <= 10 <= rate.high
    assert held >= 0.95 * 400


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    cells = (cell("a"), cell("bad", broken, how="ours"))
    first, _ = measured(tmp_path, *cells, rounds=2)
    saved = json.loads((tmp_path / "results.json").read_text())
    assert saved["status"] == "running"

    again = resumed(tmp_path, *cells)
    assert "a mistake of ours" in of(again, "bad")["error"]
    assert of(again, "bad")["status"] == "failed"
    results, journal = measured(tmp_path, results=again, rounds=3)
    assert journal.begun.count(("a", 2)) == 1
    assert sorted(row for row, _ in journal.begun) == ["a", "bad"]  # what failed is tried again
    assert of(results, "a")["visits"][:2] == of(first, "a")["visits"]
    assert results.seconds > first.seconds


def resumed(folder: Path, *cells: Cell) -> Results:
    again = Results(suite(*cells), HEADER)
    assert again.resume(folder / "results.json")
    return again


def test_an_error_goes_when_a_later_trial_succeeds(tmp_path: Path) -> None:
    measured(tmp_path, cell("a", broken, how="ours"))
    results, _ = measured(tmp_path, results=resumed(tmp_path, cell("a")))
    assert (of(results, "a")["status"], of(results, "a")["error"]) == ("measured", None)


def test_no_ratio_is_taken_across_an_interruption(tmp_path: Path) -> None:
    base = cell("a")
    cells = (base, cell("b", seconds=0.25, against=base.name))
    measured(tmp_path, base, rounds=2)
    results, _ = measured(tmp_path, results=resumed(tmp_path, *cells), rounds=2)
    assert len(of(results, "b")["visits"]) == 2
    assert of(results, "b")["ratio"] is None  # no round measured both

    results.save(tmp_path, "completed")
    results, _ = measured(tmp_path, results=resumed(tmp_path, *cells), rounds=3)
    last = [of(results, row)["visits"][-1]["round"] for row in "ab"]
    assert last[0] == last[1]
    assert of(results, "b")["ratio"]["median"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quick": True}, "quick: False in the earlier one, True in this one"),
        (
            {"overrides": ["suite=tiny", "seed=1"]},
            "suite=tiny in the earlier one, suite=tiny seed=1 in this one",
        ),
        ({"settings": {"turn": 3.0}}, "turn_seconds: 0.0 in the earlier one, 3.0 in this one"),
        (
            {"environment": HEADER["environment"] | {"cpu": "z"}},
            "processor: AMD EPYC 7B13 in the earlier one, z in",
        ),
        (
            {"environment": HEADER["environment"] | {"versions": {"torch": "3"}}},
            "python: 3.11.7 in the earlier one, none",
        ),
    ],
)
def test_another_measurement_is_not_gone_on_with(tmp_path: Path, change: dict, words: str) -> None:
    Results(suite(cell("a")), HEADER).save(tmp_path, "interrupted")
    other = Results(suite(cell("a")), HEADER | change)
    said = refusal(lambda: other.resume(tmp_path / "results.json"), ConfigError)
    assert words in said
    assert "give another folder" in said


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 9, "cells": []}', '{"schema": 1, "cells": [{}]}'])
def test_a_damaged_record_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text)
    assert "results.json" in refusal(lambda: resumed(tmp_path, cell("a")), ConfigError)


def test_figures_follow_from_the_trials(tmp_path: Path) -> None:
    base = cell("a", seconds=0.5, drift=0.1)
    other = cell("b", seconds=0.25, drift=0.05, against=base.name)
    results, _ = measured(tmp_path, base, other, rounds=3)
    a, b = of(results, "a"), of(results, "b")
    assert a["seconds"] | {"spread": None} == {"median": 0.6, "low": 0.5, "high": 0.7, "spread": None}
    assert a["images_per_second"]["median"] == pytest.approx(10 / 0.6)
    assert b["ratio"]["low"] == pytest.approx(2.0)  # within each round, whatever the drift
    assert b["ratio"]["high"] == pytest.approx(2.0)
    assert a["ratio"] is None
    assert a["figures"]["pid"]["median"] == statistics.median(trial["figures"]["pid"] for trial in a["visits"])


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{number}.bin" for number in range(3)]
    for path in paths:
        path.write_bytes(os.urandom(50_000))
    evict(str(paths[0]))
    if resident([str(paths[0])]) != 0:
        pytest.skip("intended: the file system of the temporary folder keeps its files in memory")
    return [str(path) for path in paths]


def test_the_page_cache_is_brought_into_the_cells_state(tmp_path: Path, files: list[str]) -> None:
    cells = [cell(state, reading, paths=files, cache=state) for state in ("warm", "cold")]
    results, _ = measured(tmp_path, *cells, turn=0.05)
    assert of(results, "warm")["resident"] == 1.0
    assert of(results, "cold")["resident"] <= 0.05
    assert of(results, "cold")["images"] == 150_000


def test_files_that_stay_in_memory_are_not_called_cold(tmp_path: Path) -> None:
    path = Path("/dev/shm") / f"strobe-test-{os.getpid()}"
    try:
        path.write_bytes(bytes(50_000))
        results, _ = measured(tmp_path, cell("a", reading, paths=[str(path)], cache="cold"), rounds=1)
    finally:
        path.unlink(missing_ok=True)
    assert "stay in memory" in of(results, "a")["error"]


def test_what_failed_is_told_by_cell_or_by_the_column_of_which_all_did(tmp_path: Path) -> None:
    ways = {"x": "ours", "y": "user", "z": "ours"}
    cells = [cell(row, broken, how=how, column=way) for row in "ab" for way, how in ways.items()]
    results, _ = measured(tmp_path, *cells, cell("a", column="w"), cell("b", broken, how="ours", column="w"), rounds=1)
    assert sorted(failures(results.record("completed"))) == [
        "x; z; t, b, w, 1 thread failed: ValueError: a mistake of ours",
        "y failed: DataError: data.root=nowhere is not a folder;\n give another",
    ]


def test_names_become_folders() -> None:
    assert slug("load, 32, skimage scale=numpy, 1 thread") == "load_32_skimage_scale_numpy_1_thread"
    assert slug("../../etc") == "etc"
    assert len(slug("x" * 500)) == 120
