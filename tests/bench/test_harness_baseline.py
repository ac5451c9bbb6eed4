"""Results against earlier ones; torch's measurements and the table, as files that others can read."""

import csv
import io
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from torch.utils.benchmark import Compare, Measurement

from strobe.bench.ending import effort, finish, write_table
from strobe.bench.harness import baseline, compare
from strobe.bench.harness.results import Results
from strobe.bench.harness.terminal import print_results
from strobe.bench.harness.trial import Report
from strobe.errors import ConfigError
from strobe.process.fork import Failure
from support.refusals import refusal
from support.tiny_cells import HEADER, cell, suite


def record(**rows: list[float] | str) -> dict[str, Any]:
    """Cells with these seconds in each visit, or with this error."""
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
    return results.record("completed")


def verdicts(now: dict[str, Any], then: dict[str, Any]) -> dict[str, str]:
    return {entry["name"].split(", ")[1]: entry["verdict"] for entry in baseline.against(now, then)}


def test_each_cell_gets_a_verdict() -> None:
    then = record(
        same=[1, 1.1, 0.9, 1], slow=[1, 1.1, 1.05, 1], fast=[2, 2.1, 2, 2], gone=[1], broke=[1], was="no", few=[1, 1, 1]
    )
    now = record(
        same=[1, 1.05, 0.95, 1],
        slow=[2, 2.1, 2, 2],
        fast=[1, 1.1, 1, 1],
        broke="no disk",
        was=[1],
        new=[1],
        few=[2, 2, 2, 2],
    )
    assert verdicts(now, then) == {
        "same": "no difference",
        "slow": "slower",
        "fast": "faster",
        "broke": "failed",
        "was": "only now",
        "new": "only now",
        "few": "too few trials",
        "gone": "only before",
    }


@pytest.mark.parametrize(("limit", "slower"), [(0.05, ["slow", "broke"]), (0.4, ["slow", "broke"]), (0.6, ["broke"])])
def test_a_regression_is_beyond_the_limit_and_beyond_doubt(limit: float, slower: list[str]) -> None:
    then = record(slow=[1, 1.01, 1.02, 1], doubtful=[1, 3, 1, 3], broke=[1])
    now = record(slow=[2, 2.01, 2, 2], doubtful=[2.5, 2, 2.5, 2], broke="no disk")
    found = baseline.regressions(baseline.against(now, then), limit)
    assert [name.split(", ")[1] for name in found] == slower


def test_the_interval_of_a_ratio_encloses_it_and_narrows() -> None:
    few, many = ([10.0 + (number % 5) / 10 for number in range(count)] for count in (5, 50))
    wide, narrow = (baseline.unpaired_ratio(rates, [rate / 2 for rate in rates]) for rates in (few, many))
    assert wide["median"] == pytest.approx(2)
    assert wide["low"] < 2 < wide["high"]
    assert narrow["high"] - narrow["low"] < wide["high"] - wide["low"]
    assert baseline.unpaired_ratio([4.0], [2.0]) == {"median": 2.0, "low": 2.0, "high": 2.0}


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), (" 12.5 % ", 0.125), ("0", 0.0)])
def test_shares(text: str, share: float) -> None:
    assert baseline.parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "much", "-1", "100%", "1.2.3", "%", "5", "5%%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    assert f"fail_if_slower={text} is not a share" in refusal(lambda: baseline.parse_share(text), ConfigError)


def test_a_baseline_is_of_the_same_suite(tmp_path: Path) -> None:
    Results(suite(cell("a")), HEADER).save(tmp_path, "completed")
    found = baseline.wanted(str(tmp_path), "5%", "tiny")
    assert found is not None
    assert found.file == tmp_path / "results.json"
    assert found.limit == 0.05
    assert baseline.wanted(None, None, "tiny") is None
    assert "suite=tiny" in refusal(lambda: baseline.wanted(str(tmp_path), None, "other"), ConfigError)
    assert "is not a file" in refusal(lambda: baseline.wanted(str(tmp_path / "no"), None, "tiny"), ConfigError)
    assert "needs an earlier result" in refusal(lambda: baseline.wanted(None, "5%", "tiny"), ConfigError)


def test_what_is_not_the_same_is_said() -> None:
    now = record(a=[1]) | {"quick": True, "input": {"told": "tiles", "generated": False}}
    now["environment"] = now["environment"] | {"cpu": "another"}
    now |= {"overrides": ["suite=tiny", "seed=1"], "settings": {"turn": 2.0}}
    then = record(a=[1]) | {"settings": {"turn": 0.5}}
    assert baseline.differences(now, then) == [
        "cpu a cpu, now another",
        "input nothing, now tiles",
        "one of them is in quick mode",
        "overrides suite=tiny, now suite=tiny seed=1",
        "turn_seconds 0.5, now 2",
    ]
    assert baseline.differences(record(a=[1]), record(a=[1])) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [({"quick": True}, "quick was False"), ({"input": {"told": "tiles", "generated": True}}, "input was nothing")],
)
def test_a_regression_is_told_of_the_same_work_only(change: dict, words: str) -> None:
    earlier = baseline.Baseline(Path("then.json"), record(a=[1]), 0.05)
    assert words in refusal(lambda: baseline.require_alike(record(a=[1]) | change, earlier), ConfigError)
    baseline.require_alike(record(a=[1]), earlier)
    baseline.require_alike(record(a=[1]) | change, baseline.Baseline(earlier.file, earlier.record))


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
    found = compare.measurements(record(a=[1.0, 3.0, 2.0], b=[0.5], c="no disk"))
    path = compare.save(tmp_path, found)
    read = pickle.loads(path.read_bytes())
    assert [type(one) for one in read] == [Measurement, Measurement]
    assert [one.median for one in read] == [2.0, 0.5]
    merged = Measurement.merge([*read, *read])
    assert [len(one.times) for one in merged] == [6, 2]
    assert str(Compare(read)).rstrip() == compare.compared(found)
    assert "2000.0" in compare.compared(found)
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
    console = Console(file=io.StringIO(), width=160)
    found = record(a=[1.0, 3.0], b="[no] disk", c=[0.5], d=[])
    print_results(console, suite(cell("a")), found, "torch's table")
    text = console.file.getvalue()
    assert "torch's table" in text
    assert "[no] disk" in text
    assert "one trial" in text
    assert "waiting" in text
    assert "2.00" in text


def test_a_cell_that_fails_later_shows_figures_and_error() -> None:
    console = Console(file=io.StringIO(), width=160)
    one = cell("a")
    results = Results(suite(one), HEADER)
    results.add(one, 0, Report([0.5], [10]))
    results.add(one, 1, Failure("no disk"))
    print_results(console, suite(one), results.record("completed"), "")
    text = console.file.getvalue()
    assert "20.0" in text
    assert "no disk" in text
    assert "range" in text
    assert "95% interval" not in text


def test_what_ended_the_measurement_is_said() -> None:
    spent = record(a=[1.0, 2.0, 3.0], b=[1.0]) | {"seconds": 59.0, "settings": {"rounds": 3, "budget": 60.0}}
    spent |= {"budget_spent": True}
    assert effort(spent) == (
        "1 to 3 trials a cell in 59 s; budget_seconds=60 ended it: give more, and the same hydra.run.dir to go on"
    )
    assert effort(spent | {"seconds": 9.0, "budget_spent": False}) == "1 to 3 trials a cell in 9 s"
