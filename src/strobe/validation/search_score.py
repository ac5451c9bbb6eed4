"""What a search was worth beside an exhaustive grid, as pure functions over their records."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strobe.duel.paired_trial import Duel
from strobe.measure.statistics import Estimate, Interval, quantile

FINALISTS = 3  # of the grid: the fastest of many single measurements is seldom the fastest
AIM, AIM_SHARE, AIM_ERROR = 0.95, 0.25, 0.10


@dataclass(frozen=True)
class Rated:
    """A cell of the grid, measured once; ``error`` says why it was not."""

    overrides: list[str]
    images_per_second: float | None
    error: str | None


@dataclass(frozen=True)
class Score:
    """The search beside the grid."""

    cells: int
    failed: int
    grid_seconds: float
    trainings: int  # that the search started: those that it looked at, and those that took turns
    alternatives: int  # loaders and models alone, measured after the looks
    search_seconds: float
    best: Estimate | None  # speed of the search's best over the grid's, the least of the finals
    gain: Interval | None  # over the start
    errors: list[float]  # |predicted / measured - 1| of each prediction, in order of size
    inside: int  # measured within the predicted interval


def score(tuning: Mapping[str, Any], rated: Sequence[Rated], final: Sequence[tuple[Any, Duel]], took: float) -> Score:
    """Count and summarise.

    Args:
        tuning: ``tune.json``.
        rated: the grid.
        final: the grid's fastest with the turns that they took with the search's best.
        took: seconds of the grid.
    """
    trials = [one for one in tuning["trials"] if one["measured"] and one["predicted"] and not one["bounded"]]
    pairs = [(one["predicted"], one["measured"]["median"]) for one in trials]
    ratios = [duel.ratio for _, duel in final]
    return Score(
        cells=len(rated),
        failed=sum(one.error is not None for one in rated),
        grid_seconds=took,
        trainings=tuning["trainings"],
        alternatives=sum(one.get("alternatives", 0) for one in tuning["looks"]),
        search_seconds=tuning["seconds"],
        best=min(ratios, key=lambda ratio: ratio.middle, default=None),
        gain=tuning["proof"] and tuning["proof"]["ratio"],
        errors=sorted(abs(predicted["median"] / measured - 1) for predicted, measured in pairs),
        inside=sum(predicted["low"] <= measured <= predicted["high"] for predicted, measured in pairs),
    )


def lines(found: Score) -> list[str]:
    """The figures beside the aims."""
    error = statistics.median(found.errors) if found.errors else None
    worst = quantile(found.errors, 0.9)
    gain = found.gain and f"{found.gain['median']:.2f} times as fast as the start"
    return [
        f"the search's best: {gain or 'as the start'}; {_ratio(found.best)} of the grid's best (aim {AIM})",
        f"trainings: {found.trainings} beside {found.cells} of the grid, {found.trainings / found.cells:.0%} "
        f"(aim {AIM_SHARE:.0%}), and {found.alternatives} of a loader or a model alone; "
        f"{found.search_seconds:.0f} s beside {found.grid_seconds:.0f}; {found.failed} cells failed",
        f"prediction error: median {_share(error)} (aim {AIM_ERROR:.0%}), 90th percentile {_share(worst)}, of "
        f"{len(found.errors)}; {found.inside} measured within the predicted interval",
    ]


def _ratio(ratio: Estimate | None) -> str:
    if ratio is None:
        return "unknown"
    told = f"{ratio.middle:.2f}"
    return told if ratio.low is None else f"{told} ({ratio.low:.2f} to {ratio.high:.2f})"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"
