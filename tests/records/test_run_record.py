"""The record of a run: written whole or not at all, and measured from the rows of its steps."""

import csv
import json
import math
import random
import resource
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strobe.callbacks.columns import COLUMNS, PHASES
from strobe.measure.statistics import independent, median_interval
from strobe.records.files import write_summary
from strobe.records.run import read_summary
from strobe.records.steps import measure_steps

NOTHING = {"median": None, "low": None, "high": None}


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_summary(path, {"a": math.nan, "b": [1.5, math.inf, {"c": -math.inf}], "d": None, "e": "NaN", "f": True})
    assert read_summary(path) == {"a": None, "b": [1.5, None, {"c": None}], "d": None, "e": "NaN", "f": True}
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_a_reader_never_sees_half_a_record(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_summary(path, {"a": 1})
    with path.open() as reader:
        write_summary(path, {"a": 2})
        assert json.load(reader) == {"a": 1}
    assert read_summary(path) == {"a": 2}


@contextmanager
def files_of_at_most(size: int) -> Any:
    """Let writing beyond this size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("value", "error"), [("x" * 100_000, OSError), (object(), TypeError)], ids=["full", "type"])
def test_a_failed_write_leaves_the_old_record(tmp_path: Path, value: object, error: type[Exception]) -> None:
    path = tmp_path / "summary.json"
    write_summary(path, {"a": 1})
    with files_of_at_most(50_000), pytest.raises(error):
        write_summary(path, {"a": value})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize(
    ("count", "low", "median", "high"),
    [
        (1, 1, 1, 1),
        (2, 1, 1.5, 2),
        (3, 1, 2, 3),
        (4, 1, 2.5, 4),
        (5, 1, 3, 5),
        (6, 1, 3.5, 6),
        (10, 1, 5.5, 10),
        (30, 9, 15.5, 22),
        (200, 86, 100.5, 115),
    ],
)
def test_the_interval_is_made_of_order_statistics(count: int, low: float, median: float, high: float) -> None:
    values = random.Random(0).sample(range(1, count + 1), count)
    assert median_interval(values) == {"median": median, "low": low, "high": high}


def test_no_interval_of_nothing() -> None:
    assert median_interval([]) == NOTHING


@pytest.mark.parametrize("count", [10, 30, 200])
def test_the_interval_holds_the_true_median_95_times_in_100(count: int) -> None:
    draw, rounds, hits = random.Random(0), 1000, 0
    for _ in range(rounds):
        interval = median_interval([draw.expovariate(1.0) for _ in range(count)])
        hits += interval["low"] <= math.log(2) <= interval["high"]
    assert hits / rounds >= 0.93


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Path]:
    """A steps.csv of the given (images, profiled, seconds); half of a step is forward, and the rest is other."""

    def write(*given: tuple[int, int, float]) -> Path:
        path = tmp_path / "steps.csv"
        with path.open("w", newline="") as file:
            rows = csv.DictWriter(file, COLUMNS, restval=0)
            rows.writeheader()
            for step, (images, profiled, total) in enumerate(given):
                row = {"images": images, "profiled": profiled, "total": total}
                rows.writerow({"step": step, **row, "forward": total / 2, "other": total / 2})
        return path

    return write


WARMUP = [(8, 0, 9.0)] * 3
STEADY = [(8, 0, 0.1), (8, 0, 0.2), (8, 0, 0.4), (4, 0, 0.1)]


def measured(values: Sequence[float]) -> dict[str, Any]:
    mean = sum(values) / len(values)
    return dict.fromkeys(PHASES, 0.0) | {"total": mean, "forward": mean / 2, "other": mean / 2}


def test_warmup_and_profiled_steps_count_for_nothing(record: Callable[..., Path]) -> None:
    first, *rest = STEADY
    found = measure_steps(record(*WARMUP, first, (8, 1, 7.0), (8, 1, 8.0), *rest))
    assert found["steps"] == {"measured": 4, "profiled": 2, "skipped": 3}
    assert found["images_per_second"] == pytest.approx({"median": 40.0, "low": 20.0, "high": 80.0})
    assert found["step_seconds"] == pytest.approx(measured([0.1, 0.2, 0.4, 0.1]))
    assert found["step_seconds"]["total"] == pytest.approx(sum(found["step_seconds"][name] for name in PHASES))


def test_profiled_steps_in_the_warmup_are_counted_once(record: Callable[..., Path]) -> None:
    found = measure_steps(record((8, 0, 9.0), (8, 1, 9.0), (8, 1, 9.0), (8, 1, 9.0), *STEADY))
    assert found["steps"] == {"measured": 4, "profiled": 3, "skipped": 1}


@pytest.mark.parametrize(("content", "skipped"), [(None, 0), ([], 0), (WARMUP, 3)], ids=["missing", "header", "warmup"])
def test_a_run_without_a_step_to_measure(
    record: Callable[..., Path], tmp_path: Path, content: list[tuple[int, int, float]] | None, skipped: int
) -> None:
    path = tmp_path / "missing.csv" if content is None else record(*content)
    found = measure_steps(path)
    assert found["steps"] == {"measured": 0, "profiled": 0, "skipped": skipped}
    assert found["images_per_second"] == NOTHING
    assert found["step_seconds"] == dict.fromkeys(("total", *PHASES))


def test_an_empty_file_has_no_steps(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.touch()
    assert measure_steps(path)["steps"] == {"measured": 0, "profiled": 0, "skipped": 0}


def test_a_last_line_that_is_not_whole_counts_for_nothing(record: Callable[..., Path]) -> None:
    path = record(*WARMUP, *STEADY)
    text = path.read_bytes()
    start = text.rstrip().rindex(b"\n") + 1
    whole = measure_steps(record(*WARMUP, *STEADY[:-1]))
    for end in range(start, len(text)):
        path.write_bytes(text[:end])
        assert measure_steps(path) == whole


def test_values_that_resemble_their_neighbours_count_less() -> None:
    chance = random.Random(0)
    covered = {"steps": 0, "fewer": 0}
    for _ in range(200):
        value, values = 0.0, []
        for _ in range(200):
            value = 0.9 * value + chance.gauss(0, 1)
            values.append(value)
        for name, count in (("steps", None), ("fewer", independent(values))):
            found = median_interval(values, independent=count)
            covered[name] += found["low"] <= 0 <= found["high"]
    assert covered["steps"] < 120  # of 200: far from 95%
    assert covered["fewer"] > 160
    assert independent([chance.random() for _ in range(1000)]) > 800
    assert independent([1.0, 1.0, 1.0]) == 3
