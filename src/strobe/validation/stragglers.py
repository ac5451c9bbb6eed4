"""How often the slow rank, its place and its pattern are found over gloo, and how often one is found where none is.

``python -m strobe.validation.stragglers``: a few minutes, on a machine of which nothing else takes the cores.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strobe.measure.statistics import quantile
from strobe.present.format import percent
from strobe.validation.experiment import interval_of
from strobe.validation.straggler_cases import FAULTS

CLEAN = "clean"


def trained(folder: Path, ranks: int, cases: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The records of these trainings, in turn in the same processes; exits with what they say where one fails."""
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, "-m", *launcher, "-m", "strobe.validation.straggler_cases", str(folder), *cases]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return {case: json.loads((folder / case.replace(":", "-") / "summary.json").read_text()) for case in cases}


def judged(case: str, ranks: int, summary: dict[str, Any]) -> dict[str, Any]:
    """Whether a record says what its fault is; with the error of the slow-down, by the work that is known."""
    fault, measured = FAULTS[case.partition(":")[0]], summary["ranks"]
    findings = [finding for finding in summary["findings"] if finding["cause"] == "straggler"]
    who = measured["slowest"] if fault.rank is not None else None
    truth = fault.pattern, fault.phase, fault.rank, fault.uneven
    right = (measured["pattern"], measured["phase"], who, measured["uneven"]) == truth and bool(findings)
    work = sum(measured["own_seconds"].values()) / ranks - fault.mean_nap(ranks)
    true = fault.slowdown(ranks, work)
    return {
        "case": case,
        "ranks": ranks,
        "right": not findings if fault.pattern is None else right,
        "clean": fault.pattern is None,
        "first": bool(findings) and summary["findings"][0] == findings[0],
        "error": abs(measured["slowdown"]["median"] / true - 1),
        "found": f"{measured['pattern']}, rank {measured['slowest']}, {measured['phase']}",
    }


def report(results: Sequence[dict[str, Any]]) -> list[str]:
    """The figures in words, and each miss."""
    lines = []
    for ranks in sorted({one["ranks"] for one in results}):
        some = [one for one in results if one["ranks"] == ranks]
        faulty, clean = ([one for one in some if one["clean"] == kind] for kind in (False, True))
        right, first = (sum(one[key] for one in faulty) for key in ("right", "first"))
        middle, most = (percent(quantile([one["error"] for one in faulty], at) or 0.0) for at in (0.5, 0.9))
        verdict = f"right in {right} of {len(faulty)} ({interval_of(right, len(faulty))})" if faulty else "not asked"
        lines += [
            f"{ranks} ranks: rank, place and pattern {verdict}, as the first finding in {first}",
            f"  error of the slow-down: median {middle}, 90th percentile {most}",
            f"  alarms: {sum(not one['right'] for one in clean)} of {len(clean)} controls without a fault",
            *(f"  {one['case']}: {one['found']}" for one in some if not one["right"]),
        ]
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Train all faults and the clean controls with 2 and with 4 ranks."""
    parser = argparse.ArgumentParser(prog="python -m strobe.validation.stragglers", description=__doc__)
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="of each fault, with 2 and with 4 ranks")
    parser.add_argument("--clean", type=int, default=20, metavar="N", help="controls without a fault, likewise")
    options = parser.parse_args(arguments)
    faults = [f"{name}:{number}" for number in range(options.repeats) for name in FAULTS if name != CLEAN]
    cases = [*faults, *(f"{CLEAN}:{number}" for number in range(options.clean))]
    results = []
    for ranks in (2, 4):
        with tempfile.TemporaryDirectory() as folder:
            summaries = trained(Path(folder), ranks, cases)
            results += [judged(case, ranks, summary) for case, summary in summaries.items()]
    print("\n".join(report(results)))


if __name__ == "__main__":
    main()
