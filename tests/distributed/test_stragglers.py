"""Real ranks over gloo, one of them slow: which one, where and how is told, and what training would gain."""

import json
from pathlib import Path
from typing import Any

import pytest

from strobe.validation.straggler_cases import FAULTS
from support.processes import begin, ended

QUICK = ("data", "first-callback", "turns-forward", "growing", "clean")


def trained(folder: Path, ranks: int, *cases: str) -> dict[str, Any]:
    """The records of these trainings, in turn in the same processes."""
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    ended(begin(*launcher, "-m", "strobe.validation.straggler_cases", str(folder), *cases))
    return {case: json.loads((folder / case / "summary.json").read_text()) for case in cases}


@pytest.mark.parametrize(
    ("ranks", "cases"), [(2, QUICK), pytest.param(4, tuple(FAULTS), marks=pytest.mark.slow)], ids=["2", "4"]
)
def test_rank_place_and_pattern_are_found(ranks: int, cases: tuple[str, ...], tmp_path: Path) -> None:
    for case, summary in trained(tmp_path, ranks, *cases).items():
        fault, found = FAULTS[case], summary["ranks"]
        assert found["coverage"] == 1
        assert (found["pattern"], found["phase"]) == (fault.pattern, fault.phase), case
        assert found["slowest"] == fault.rank or fault.pattern == "alternating"
        causes = [finding["cause"] for finding in summary["findings"]]
        assert ("straggler" in causes) == (fault.pattern is not None)
