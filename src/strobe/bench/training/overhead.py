"""What follows from the figures of ``suite=overhead``. Imports no torch."""

from collections.abc import Mapping
from typing import Any

from strobe.bench.harness.results import Interval, by_round
from strobe.present.format import estimate as written

PLAIN = "plain loop"
APPLICATION = "application"
UNTIMED = "application without phase timers"
WAITING = "application, trace waiting"
RECORDING = "application, trace recording"
VERDICT, INTERVAL = 4, 6  # rounds, from which on a difference is told, and the range of ratios is an interval
PAIRS = (  # what is asked, by what is held against what
    ("The application against a plain PyTorch loop", APPLICATION, PLAIN),
    ("Phase timers on against off", APPLICATION, UNTIMED),
    ("A trace callback that waits against none", WAITING, APPLICATION),
    ("A trace that records against one that waits", RECORDING, WAITING),
)


def conclude(record: Mapping[str, Any]) -> list[str]:
    """A sentence for each question; of what was not measured, why."""
    cells = {cell["column"]: cell for cell in record["cells"]}
    found = []
    for question, one, other in PAIRS:
        missing = [name for name in (one, other) if not cells[name]["visits"]]
        if missing:
            found.append(f"{question}: not known, for {missing[0]} was not measured.")
        elif (ratio := by_round(cells[one], cells[other])) is not None:
            rounds = [{visit["round"] for visit in cells[name]["visits"]} for name in (one, other)]
            verdict = _verdict(ratio, len(set.intersection(*rounds)))
            found.append(f"{question}: {written(ratio)} times as fast, {verdict}.")
    return found


def _verdict(ratio: Interval, rounds: int) -> str:
    median, low, high = (ratio[end] or 0.0 for end in ("median", "low", "high"))
    if rounds < VERDICT:
        return "too few visits to tell whether that is a difference"
    if low <= 1 <= high:
        return f"no difference that the {'interval' if rounds >= INTERVAL else f'range of {rounds} visits'} would show"
    return f"a step takes {abs(1 / median - 1):.1%} {'longer' if median < 1 else 'less'}"
