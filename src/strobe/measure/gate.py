"""The gate ``--fail-if-slower 5%``: it passes only if every cell is shown to have lost less than that.

It tests non-inferiority, so too few runs or too much noise do not pass. A cell passes if the whole interval of
its speed, as a share of the baseline's, lies above 1 - limit. It is a regression if the whole interval lies below that,
or if it failed where the baseline did not; those intervals allow for the number of cells; for a pass they need
not, because all must pass. Anything else cannot be told yet.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strobe.errors import ConfigError
from strobe.measure.statistics import FEWEST, Estimate, needed, together

REGRESSION, UNKNOWN = 3, 4  # exit codes; 0: each cell has passed
USUAL = 5  # runs, if the spread is unknown
MOST_TOLD = 5


@dataclass(frozen=True)
class Case:
    """One cell before the gate."""

    name: str
    ratio: Estimate | None = None  # its speed over the baseline's; None if unknown
    failed: bool = False  # where the baseline did not
    doubt: str | None = None  # why it cannot be judged, whatever the ratio: a counterpart or a record is missing


@dataclass(frozen=True)
class Ruling:
    """The gate's verdict on all cells; lists hold their names."""

    limit: float  # share of speed that may be lost
    passed: list[str]  # shown to have kept more than 1 - limit
    slower: list[str]  # regressions
    unjudged: list[str]  # cannot be told yet
    text: str  # the verdict in one line

    @property
    def code(self) -> int:
        """The exit code: 0 only if there is a cell, and each has passed."""
        if self.slower:
            return REGRESSION
        return 0 if self.passed and not self.unjudged else UNKNOWN

    def as_record(self) -> dict[str, Any]:
        """The entry in ``comparison.json`` and ``results.json``."""
        names = {"cells": self.slower, "unjudged": self.unjudged}
        return {"limit": self.limit, **names, "code": self.code, "text": self.text}


def rule(cases: Sequence[Case], limit: float, flag: str, more: str, lacking: Sequence[str] = ()) -> Ruling:
    """Judge each cell.

    Args:
        cases: the cells, without the baseline's own.
        limit: the share of speed that may be lost.
        flag: the option that set the limit: ``--fail-if-slower `` or ``fail_if_slower=``.
        more: the key that gives a cell more runs: ``sweep.repeats`` or ``rounds``.
        lacking: what keeps the gate closed besides the cells, such as a record that cannot be read.
    """
    passed, slower = [], []
    ratios = [case.ratio.times(1 / (1 - limit)) if case.ratio else None for case in cases]
    careful = iter(together([ratio for ratio in ratios if ratio]))  # one of many cells may look slow by chance
    for case, ratio in zip(cases, ratios, strict=True):
        lost = ratio is not None and next(careful).verdict == "slower"
        if case.failed or lost:
            slower.append(case)
        elif case.doubt is None and ratio and ratio.verdict == "faster":
            passed.append(case.name)
    open_ = [case for case in cases if case not in slower and case.name not in passed]
    names = [case.name for case in open_] + list(lacking)
    least = f"{100 * (1 - limit):.4g}% of the baseline's speed"
    if slower:
        told = ["regression", _listed([_told(case) for case in slower])]
        told += [f"{len(names)} more cannot be judged"] if names else []
    elif names:
        doubts = [f"{case.name}: {case.doubt}" if case.doubt else _told(case) for case in open_]
        told = ["cannot tell", _listed([*doubts, *lacking]), _settled(open_, limit, more)]
    elif passed:
        who = f"{passed[0]} is" if len(passed) == 1 else _cells(len(passed))
        told = ["passed", f"{who} shown to keep more than {least}"]
    else:
        told = ["cannot tell", "there is no cell besides the baseline; give one"]
    head, *rest = [words for words in told if words]
    text = f"{flag}{100 * limit:.4g}%: {head}: {'; '.join(rest)}"
    return Ruling(limit, passed, [case.name for case in slower], names, text)


def _told(case: Case) -> str:
    """A cell's speed, or that it failed."""
    if case.ratio is None or case.failed:
        return f"{case.name} failed" if case.failed else f"{case.name}: not measured"
    ratio = case.ratio
    if ratio.low is None or ratio.high is None:
        return f"{case.name} is {ratio.middle:.3g} times as fast, but that takes {FEWEST} runs a side to judge"
    if ratio.wide:
        return f"{case.name}: not known, because its runs differ too much"
    return f"{case.name} is {ratio.middle:.3g} ({ratio.low:.3g} to {ratio.high:.3g}) times as fast"


def _settled(cases: Sequence[Case], limit: float, more: str) -> str:
    """How many more runs would settle it; empty if runs would not."""
    ratios = [case.ratio for case in cases if case.ratio and case.doubt is None]
    if not ratios:
        return ""
    counts = [needed(ratio, 1 - limit) if ratio.low is not None else USUAL for ratio in ratios]
    if near := counts.count(None):
        return f"{_cells(near)} too close to the limit for any number of runs: set another limit"
    return f"about {more}={max(count or 0 for count in counts)} on both sides would settle it"


def _cells(count: int) -> str:
    return "1 cell is" if count == 1 else f"{count} cells are"


def _listed(told: Sequence[str]) -> str:
    rest = len(told) - MOST_TOLD
    return "; ".join(told[:MOST_TOLD]) + (f"; and {rest} more" if rest > 0 else "")


def parse_share(text: str, key: str = "fail_if_slower=") -> float:
    """A share such as ``5%``, or ``0.05``, given as ``key`` says.

    Raises:
        ConfigError: it is not a share, or not between 0 and 1.
    """
    match = re.fullmatch(r"\s*([0-9.]+)\s*(%?)\s*", text)
    try:
        value = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise ConfigError(f"{key}{text} is not a share; give one below 100%, such as {key}5%")
    return value
