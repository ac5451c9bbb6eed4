"""Results against earlier ones; torch's measurements and the table, as files that others can read."""

import csv
import io
import json
import math
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from torch.utils.benchmark import Compare, Measurement

from strobe.bench.ending import MEASUREMENTS, effort, finish, print_results, save_measurements, write_table
from strobe.bench.harness import baseline
from strobe.bench.harness.results import Results
from strobe.bench.harness.trial import Report
from strobe.compare.gather import Request, gather
from strobe.errors import ConfigError
from strobe.measure.statistics import unpaired
from strobe.process.fork import Failure
from support.refusals import refusal
from support.run_folders import write_sweep
from support.tiny_cells import HEADER, cell, suite


def measured_as(**rows: list[float] | str) -> Results:
    """Cells with these seconds in each trial, or with this error."""
    first = cell(next(iter(rows)))
    cells = [first, *(cell(row, against=first.name) for row in list(rows)[1:])]
    results = Results(suite(*cells), HEADER)
    for one in cells:
        found = rows[one.row]
        if isinstance(found, str):
            results.add(one, 0, Failure(found))
        else:
            for number, seconds in enumerate(found):
                results.add(one, number, Report([seconds], [10], repetitions=1))
    return results


def record(**rows: list[float] | str) -> dict[str, Any]:
    return measured_as(**rows).record("completed")


def test_each_cell_gets_a_verdict() -> None:
    then = record(
        same=[1, 1.1, 0.9, 1], slow=[1, 1.1, 1.05, 1], fast=[2, 2.1, 2, 2], gone=[1], broke=[1], was="no", few=[1]
    )
    now = record(
        same=[1, 1.05, 0.95, 1],
        slow=[2, 2.1, 2, 2],
        fast=[1, 1.1, 1, 1],
        broke="no disk",
        was=[1],
        new=[1],
        few=[2] * 4,
    )
    assert {entry["name"].split(", ")[1]: entry["verdict"] for entry in baseline.against(now, then)} == {
        "same": "no difference",
        "slow": "slower",
        "fast": "faster",
        "broke": "failed",
        "was": "only now",
        "new": "only now",
        "few": "too few runs",
        "gone": "only before",
    }


STEADY = [1, 1.01, 1.02, 1]


@pytest.mark.parametrize(
    ("now", "then", "code", "said"),
    [
        (
            {"a": STEADY},
            {"a": STEADY},
            0,
            "passed: t, a, c, 1 thread is shown to keep more than 95% of the baseline's speed",
        ),
        ({"a": [2, 2.01, 2, 2]}, {"a": STEADY}, 3, "regression: t, a, c, 1 thread is 0.503 (0.49"),
        ({"a": STEADY, "b": "no disk"}, {"a": STEADY, "b": STEADY}, 3, "regression: t, b, c, 1 thread failed"),
        ({"a": STEADY, "b": "no disk"}, {"a": STEADY, "b": "no disk"}, 4, "b, c, 1 thread: the baseline has not"),
        ({"a": [1, 3, 1, 3]}, {"a": STEADY}, 4, "on both sides would settle it"),
        ({"a": [1]}, {"a": STEADY}, 4, "but that takes 2 runs a side to judge; about rounds=5 on both sides"),
        ({"a": STEADY, "b": STEADY}, {"a": STEADY}, 4, "b, c, 1 thread: the baseline has not measured it"),
        ({"a": STEADY}, {"a": STEADY, "b": STEADY}, 4, "b, c, 1 thread: it was measured only in the baseline"),
    ],
)
def test_the_exit_code_is_the_gates(
    tmp_path: Path, now: dict[str, Any], then: dict[str, Any], code: int, said: str
) -> None:
    earlier = baseline.Baseline(Path("then.json"), record(**then), 0.05)
    console = Console(file=io.StringIO(), width=200)
    assert finish(console, measured_as(**now), tmp_path, earlier) == code
    line = next(line for line in console.file.getvalue().splitlines() if line.startswith("fail_if_slower=5%: "))
    assert said in line
    assert json.loads((tmp_path / "results.json").read_text())["gate"]["code"] == code


def test_results_of_different_days_are_not_judged(tmp_path: Path) -> None:
    """The machine may be another one by then: neither a loss nor a gain is the program's."""
    then = record(a=STEADY, b=STEADY) | {"began": "2026-02-22T09:30:00"}
    now = measured_as(a=[2, 2.01, 2, 2], b=STEADY)
    console = Console(file=io.StringIO(), width=400)
    assert finish(console, now, tmp_path, baseline.Baseline(Path("then.json"), then, 0.05)) == 4
    saved = json.loads((tmp_path / "results.json").read_text())
    assert [entry["verdict"] for entry in saved["baseline"]] == ["not known"] * 2
    assert saved["baseline"][0]["ratio"] == {"median": pytest.approx(0.503, abs=0.001), "low": None, "high": None}
    remedy = "the results are of different days, between which a machine changes; measure the baseline again today"
    assert saved["gate"]["text"].startswith(f"fail_if_slower=5%: cannot tell: t, a, c, 1 thread: {remedy}")
    assert console.file.getvalue().count(remedy[1:]) == 3  # before the gate, and for each cell
    assert baseline.ruled(record(a="no disk"), then, 0.05).code == 3  # it fails on any day


@pytest.mark.parametrize("noise", [0.01, 0.06])
def test_the_same_rates_get_the_same_verdict_as_runs_and_as_trials(tmp_path: Path, noise: float) -> None:
    """Of ``strobe.compare`` and of ``strobe.bench``."""
    chance = random.Random(4)
    codes = []
    for speed in (1.0, 0.97, 0.95, 0.92, 0.85):
        sides = [[100 * of * math.exp(chance.gauss(0, noise)) for _ in range(5)] for of in (speed, 1.0)]
        now, then = (write_sweep(tmp_path / f"{speed}{side}", [("loader=pil", sides[side])]) for side in (0, 1))
        runs = gather(Request([now], now, "", str(then), 0.05))
        trials = [record(a=[10 / rate for rate in side]) for side in sides]
        [entry] = baseline.against(*trials)
        assert entry["ratio"] == pytest.approx(runs["cells"][0]["speedup"])
        assert entry["verdict"] == runs["cells"][0]["verdict"]
        assert baseline.ruled(*trials, 0.05).code == runs["regression"]["code"]
        codes.append(runs["regression"]["code"])
    assert set(codes) == {0, 3, 4} if noise == 0.01 else 4 in codes


def test_verdicts_hold_for_all_cells_together(tmp_path: Path) -> None:
    """Of 100 equal cells, some would look slower or faster by chance; as runs and as trials, none does."""
    chance = random.Random(1)
    names = [f"cell{number}" for number in range(100)]
    sides = [{name: [100 * math.exp(chance.gauss(0, 0.02)) for _ in range(5)] for name in names} for _ in range(2)]
    alone = [unpaired(now, then).verdict for now, then in zip(*(side.values() for side in sides), strict=True)]
    assert {"slower", "faster"} & set(alone)
    now, then = (
        write_sweep(tmp_path / str(place), [(f"loader={name}", rates) for name, rates in side.items()])
        for place, side in enumerate(sides)
    )
    runs = {cell["name"].removeprefix("loader="): cell for cell in gather(Request([now], now, "", str(then)))["cells"]}
    trials = [record(**{name: [10 / rate for rate in rates] for name, rates in side.items()}) for side in sides]
    for entry in baseline.against(*trials):
        cell = runs[entry["name"].split(", ")[1]]
        assert (entry["verdict"], entry["ratio"]) == ("no difference", pytest.approx(cell["speedup"]))


def test_a_baseline_is_of_the_same_suite(tmp_path: Path) -> None:
    measured_as(a=[1.0, 2.0]).save(tmp_path, "completed")
    found = baseline.wanted(str(tmp_path), "5%", "tiny", 7)
    assert found is not None
    assert found.file == tmp_path / "results.json"
    assert found.limit == 0.05
    assert baseline.wanted(None, None, "tiny", 7) is None
    assert "suite=tiny" in refusal(lambda: baseline.wanted(str(tmp_path), None, "other", 7), ConfigError)
    assert "is not a file" in refusal(lambda: baseline.wanted(str(tmp_path / "no"), None, "tiny", 7), ConfigError)
    assert "needs an earlier result" in refusal(lambda: baseline.wanted(None, "5%", "tiny", 7), ConfigError)


@pytest.mark.parametrize(("rounds", "before"), [(1, 2), (2, 1)])
def test_rounds_that_can_tell_nothing_are_refused_before_anything_is_measured(
    tmp_path: Path, rounds: int, before: int
) -> None:
    measured_as(a=[1.0] * before).save(tmp_path, "completed")
    said = refusal(lambda: baseline.wanted(str(tmp_path), "5%", "tiny", rounds), ConfigError)
    assert "fail_if_slower=5% cannot be told with" in said
    assert said.endswith("give rounds=7 in both")
    assert baseline.wanted(str(tmp_path), None, "tiny", rounds) is not None


def test_what_is_not_the_same_is_said() -> None:
    now = record(a=[1]) | {"quick": True, "input": {"told": "tiles", "generated": False}}
    now["environment"] = now["environment"] | {"cpu": "another"}
    now |= {"overrides": ["suite=tiny", "seed=1"], "settings": {"turn": 2.0}}
    then = record(a=[1]) | {"settings": {"turn": 0.5}}
    assert baseline.differences(now, then) == [
        "The results differ in processor: AMD EPYC 7B13 in the earlier one, another in this one",
        "The results differ in input: nothing in the earlier one, tiles in this one",
        "The results differ in generated input: True in the earlier one, False in this one",
        "The results differ in quick: False in the earlier one, True in this one",
        "The results differ in overrides: suite=tiny in the earlier one, suite=tiny seed=1 in this one",
        "The results differ in turn_seconds: 0.5 in the earlier one, 2.0 in this one",
    ]
    assert baseline.differences(record(a=[1]), record(a=[1])) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [({"quick": True}, "quick was False"), ({"input": {"told": "tiles", "generated": True}}, "input was nothing")],
)
def test_a_regression_is_told_of_the_same_work_only(change: dict, words: str) -> None:
    earlier = baseline.Baseline(Path("then.json"), record(a=[1]), 0.05)
    assert words in refusal(lambda: baseline.require_same_work(record(a=[1]) | change, earlier), ConfigError)
    baseline.require_same_work(record(a=[1]), earlier)
    baseline.require_same_work(record(a=[1]) | change, baseline.Baseline(earlier.file, earlier.record))


def test_a_conclusion_that_goes_wrong_loses_no_figures(tmp_path: Path) -> None:
    def wrong(_: Any) -> list[str]:
        raise ValueError("a mistake of ours")

    one = cell("a")
    results = Results(replace(suite(one), conclude=wrong), HEADER)
    results.add(one, 0, Report([1.0], [10]))
    with pytest.raises(ValueError, match="a mistake of ours"):
        finish(Console(file=io.StringIO()), results, tmp_path, None)
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "results.csv", "measurements.pkl"}


def test_measurements_are_torchs_own(tmp_path: Path) -> None:
    path = tmp_path / MEASUREMENTS
    save_measurements(path, record(a=[1.0, 3.0, 2.0], b=[0.5], c="no disk"))
    read = pickle.loads(path.read_bytes())
    assert [type(one) for one in read] == [Measurement, Measurement]
    assert [one.median for one in read] == [2.0, 0.5]
    merged = Measurement.merge([*read, *read])
    assert [len(one.times) for one in merged] == [6, 2]
    assert "2000.0" in str(Compare(read))
    assert sorted(item.name for item in tmp_path.iterdir()) == ["measurements.pkl"]


def test_the_table_has_a_row_for_each_cell(tmp_path: Path) -> None:
    write_table(tmp_path / "results.csv", record(a=[1.0, 3.0, 2.0], b=[0.5, 1.5], c="no, disk"))
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == ["a", "b", "c"]
    assert [row["status"] for row in rows] == ["measured", "measured", "failed"]
    assert float(rows[0]["seconds_median"]) == 2.0
    assert float(rows[0]["images_per_second_high"]) == 10.0
    assert float(rows[1]["ratio_median"]) == 2.0
    assert rows[2]["error"] == "no, disk"
    assert rows[2]["seconds_median"] == ""


def test_the_terminal_shows_failed_and_waiting_cells_too() -> None:
    def printed(found: dict[str, Any], *said: str) -> str:
        console = Console(file=io.StringIO(), width=160)
        print_results(console, suite(cell("a")), found)
        assert all(words in console.file.getvalue() for words in said)
        return console.file.getvalue()

    found = record(a=[1.0, 3.0], b="[no] disk", c=[0.5], d=[])
    printed(found, "[no] disk", "one trial", "waiting", "2.00")
    results = measured_as(a=[0.5])
    results.add(cell("a"), 1, Failure("no disk"))
    assert "95% interval" not in printed(results.record("completed"), "20.0", "no disk", "range")


def test_what_ended_the_measurement_is_said() -> None:
    spent = record(a=[1.0, 2.0, 3.0], b=[1.0]) | {"seconds": 59.0, "settings": {"rounds": 3, "budget": 60.0}}
    spent |= {"budget_spent": True}
    assert effort(spent) == (
        "1 to 3 trials a cell in 59 s; budget_seconds=60 ended it; to continue, give more, and the same hydra.run.dir"
    )
    assert effort(spent | {"seconds": 9.0, "budget_spent": False}) == "1 to 3 trials a cell in 9 s"
