"""How many times as fast one cell of a comparison is as another, within repeats of their sweep if these match."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from strobe.compare.cells import BATCH, LEARNING_RATE, CellRecord, Key
from strobe.compare.runs import Trained
from strobe.measure.days import FEWEST_DAYS, ratio_by_day, too_few_days
from strobe.measure.statistics import FEWEST, LEVEL, RATIO_LEVEL, Blocks, Estimate

NEAR = 0.05  # of the best: the smallest batch that is as fast is the knee
ALONE = "all else alike"
NIGHT = timedelta(hours=12)  # between the runs of a sweep that goes on beyond midnight, at most
DIFFERENT_DAYS = (
    f"runs of different days; it takes {FEWEST_DAYS} days a side to judge, or strobe duel, which lets both train now"
)


def ratio_of(ours: Sequence[Trained], theirs: Sequence[Trained], level: float = RATIO_LEVEL) -> Estimate | None:
    """How many times as fast one side is as the other, of independent runs; None if one of them has no rate."""
    here, there = _by_day(ours, theirs)
    return ratio_by_day(here, there, level=level) if here and there else None


def of_too_few_days(ours: Sequence[Trained], theirs: Sequence[Trained]) -> bool:
    """Whether two sides cannot be compared as independent runs, because they are of different days."""
    return too_few_days(*_by_day(ours, theirs))


def _by_day(*sides: Sequence[Trained]) -> list[dict[str, list[float]]]:
    """The rates of each side by day; a sweep that lasts beyond midnight is of the day on which it began."""
    known = [[run for run in runs if run.rate is not None] for runs in sides]
    begun: dict[Any, datetime] = {}
    for run in chain(*known):
        begun[run.origin] = min(begun.get(run.origin, run.ended), run.ended)
    rates: list[dict[str, list[float]]] = []
    for runs in known:
        rates.append({})
        for run in runs:
            first = begun[run.origin]
            day = first if run.order and run.ended - first < NIGHT else run.ended
            rates[-1].setdefault(day.date().isoformat(), []).append(run.rate or 0.0)
    return rates


class Speeds:
    """Ratios of cells' rates; None means a baseline that is not among the cells.

    A sweep visits all its cells once a repeat. If each run of a cell is the only one of its repeat, the cell is
    compared within repeats (:class:`~strobe.measure.statistics.Blocks`); else by :func:`ratio_of`.
    """

    def __init__(self, cells: Mapping[Key | None, Sequence[Trained]]) -> None:
        self._cells, blocks = cells, {}
        for key, runs in cells.items():
            held = {(run.origin, run.order[1]): run.rate for run in runs if run.rate is not None and run.order}
            if held and len(held) == sum(run.rate is not None for run in runs):
                blocks[key] = held
        self._blocks = Blocks(blocks) if blocks else None

    def paired(self, ours: Key | None, theirs: Key | None) -> bool:
        """Whether two cells share enough repeats to be compared within these."""
        return self._blocks is not None and self._blocks.shared(ours, theirs) >= FEWEST

    def ratio(self, ours: Key | None, theirs: Key | None, level: float = RATIO_LEVEL) -> Estimate | None:
        """How many times as fast the one is as the other; None if one of them has no rate."""
        if self._blocks is not None and self.paired(ours, theirs):
            return self._blocks.ratio(ours, theirs, level)
        return ratio_of(self._cells[ours], self._cells[theirs], level)

    def not_slower(self, best: Key | None, others: Sequence[Key | None]) -> dict[Key | None, bool | None]:
        """For each other cell, whether it may be as fast as the one with the highest rate; None if unknown.

        In ``LEVEL`` of all comparisons the truly fastest cell is not called slower: a multiple
        comparison with the best (Hsu, "Multiple Comparisons", 1996, chapter 4), with Bonferroni's bound.
        """
        known = [ratio for key in others if (ratio := self.ratio(best, key)) and ratio.low is not None]
        level = 1 - 2 * (1 - LEVEL) / max(1, len(known))
        ratios = {key: self.ratio(best, key, level) for key in others}
        return {key: ratio.low <= 1 if ratio and ratio.low is not None else None for key, ratio in ratios.items()}

    def knee(self, sizes: Mapping[int, Key | None]) -> tuple[int, int] | None:
        """Between which batch sizes the smallest one lies that comes within ``NEAR`` of the fastest; None if unknown.

        This holds in ``LEVEL`` of all cases. A size lies below it if it is shown to be slower than that compared with
        any other one, and at or above it if it is shown to be as near to every other one.
        """
        ordered, level = sorted(sizes), 1 - (1 - LEVEL) / max(1, len(sizes) - 1)
        low, high = None, ordered[-1]
        for size in ordered:
            ratios = [self.ratio(sizes[size], sizes[other], level) for other in ordered if other != size]
            ends = [(ratio.low, ratio.high) for ratio in ratios if ratio and ratio.low and ratio.high]
            if len(ends) < len(ratios):
                return None
            if low is None and all(end >= 1 - NEAR for _, end in ends):
                low = size
            if all(end >= 1 - NEAR for end, _ in ends):
                high = size
                break
        if low is None or low > high or (low, high) == (ordered[0], ordered[-1]):
            return None
        return low, high


def knees(cells: Sequence[tuple[Key | None, CellRecord]], speeds: Speeds) -> list[dict[str, Any]]:
    """One for each group of completed cells that are alike in all but their batch size, of two sizes at least.

    No knee is reported if only the fastest batch is within 5% of the best. ``low`` and ``high`` are the batch sizes
    between which it lies, None if unknown.
    """
    groups: dict[str, dict[int, tuple[float, Key | None]]] = {}
    for key, cell in cells:
        size, rate = cell["values"]["batch_size"], cell["images_per_second"]
        if isinstance(size, int) and rate is not None and cell["status"] == "completed":
            overrides = [(name, value) for name, value in cell["overrides"].items() if value]
            others = ", ".join(
                f"{name}={value}" for name, value in overrides if name != BATCH and name not in LEARNING_RATE
            )
            rates = groups.setdefault(others, {})
            if size not in rates or rate["median"] > rates[size][0]:
                rates[size] = rate["median"], key
    entries = []
    for others, rates in groups.items():
        best = max(rates, key=lambda size: (rates[size][0], -size))
        size = min(size for size, (rate, _) in rates.items() if rate >= (1 - NEAR) * rates[best][0])
        if size != best:
            low, high = speeds.knee({size: key for size, (_, key) in rates.items()}) or (None, None)
            knee = {"where": others or ALONE, "batch_size": size, "low": low, "high": high}
            entries.append(knee | {"images_per_second": rates[size][0], "best_batch_size": best})
    return entries
