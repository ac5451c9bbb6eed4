"""Real ranks over gloo, one of them slow: which one, where and how is told, and what training would gain."""

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
