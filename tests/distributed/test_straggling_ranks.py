"""Real ranks over gloo, one of them slow: which one, where and how is told, and what training would gain."""

import statistics
from pathlib import Path

import pytest

from strobe.validation.straggler_cases import FAULTS
from strobe.validation.stragglers import CLEAN, judged, report, trained

# The clean control needs free cores: beside other tests a rank may well be slower than the other one.
QUICK = ("data", "first-callback", "turns-forward", "growing")
ALL = tuple(name for name in FAULTS if name != CLEAN)


@pytest.mark.parametrize(("ranks", "cases"), [(2, QUICK), pytest.param(4, ALL, marks=pytest.mark.slow)], ids=["2", "4"])
def test_rank_place_and_pattern_are_found(ranks: int, cases: tuple[str, ...], tmp_path: Path) -> None:
    found = [judged(case, ranks, summary) for case, summary in trained(tmp_path, ranks, cases).items()]
    assert all(one["right"] for one in found), report(found)
    if cases == ALL:  # a slow test, of many: beside other programs they are less exact than on a machine of their own
        assert statistics.median(one["error"] for one in found) < 0.15, report(found)


@pytest.mark.slow
def test_of_ranks_that_are_alike_hardly_any_is_called_slow(tmp_path: Path) -> None:
    cases = [f"{CLEAN}:{number}" for number in range(10)]
    found = [judged(case, 2, summary) for case, summary in trained(tmp_path, 2, cases).items()]
    assert sum(not one["right"] for one in found) <= 1, report(found)  # which other programs may have held up
