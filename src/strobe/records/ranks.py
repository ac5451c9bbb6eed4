"""Several ranks: joins their rows step by step, and finds out who waits for whom.

In synchronous training each step takes as long as the rank that works longest; the others wait for it. A rank's own
work is its step minus ``exposed_wait``, the time that it waited. The slow-down, the mean of the slowest rank's own work
over the mean of all ranks', is that of "Understanding stragglers in large model training" (arXiv 2505.05713, section
3).
"""

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strobe.callbacks.columns import DEVICE, GAPS, OWNED, PHASES, RANKS_FOLDER
from strobe.measure.statistics import independent, mean_ratio
from strobe.measure.timing import WARMUP_STEPS
from strobe.records.step_table import StepTable

HOST = ("data_wait", "callbacks", "other")  # phases in which a device has nothing to do
WAIT, DEVICE_WAIT, ON_DEVICE = "exposed_wait", "device_exposed_wait", "device_total"
SIZES = ("elements", "images")  # of a batch
FEWEST = 12  # steps that all ranks have: with fewer nobody is called slow
FEWEST_TO_CHANGE = 24  # likewise for growing, and for taking turns
SURE, NOTABLE = 0.99, 0.05  # level at which a step is longer than without the slow ranks, by so much at least
BEYOND, SETTLED = 2.0, 100  # standard deviations of the others' work, more than these; after four times the steps, half
MOSTLY = 0.5  # of what is lost, by the same ranks
EARLY, BEGUN = 0.5, 0.25  # of the last quarter's extra work: less in the first, it has grown; from here on it is there
CLEAR = 4.0  # standard errors by which the last quarter differs from the first
PARTS = 20  # of the run, at most, in which the beginning is looked for
REGULAR = 0.6  # of the differences between ranks, explained by a period or by the sizes of batches
REPEATS, LONGEST = 6, 64  # of a period: how often it is seen at least, and its steps at most
TYPICAL = 0.25  # of the mean work lost in a typical step, where ranks take turns without a rule
CONCENTRATED = 0.5  # by how much more of the extra work than of all work lies in one phase, then
SIZED, FLATTEST, STEEPEST = 0.025, 0.2, 3.0  # relative: how far sizes differ; extra work for these, at least and most
USUAL, SAME = 0.9, 0.8  # of the steps: much less than what such a one loses is chance; of those, by the same rank
TAIL = 0.02  # of the steps on either side, taken for less extreme where regularity is looked for
COLUMNS = 60  # of the heat map

Values = NDArray[np.float64]


def rank_files(run_dir: Path) -> dict[int, Path]:
    """Each rank's file of rows, if it has one; rank 0's is ``steps.csv``."""
    paths = {int(path.stem): path for path in (run_dir / RANKS_FOLDER).glob("*.csv") if path.stem.isdecimal()}
    paths[0] = run_dir / "steps.csv"
    return {rank: path for rank, path in sorted(paths.items()) if path.is_file()}


def summarised(tables: Mapping[int, StepTable], world_size: int) -> dict[str, Any]:
    """What ``measure_ranks`` returns, from the rows of each rank, of which there is one at least."""
    numbers = [table.get("step") for table in tables.values()]
    steps = reduce(np.union1d, numbers)[WARMUP_STEPS:]
    shared = reduce(np.intersect1d, numbers, steps)
    needed = [WAIT, *[ON_DEVICE] * any(table.has(ON_DEVICE).any() for table in tables.values())]
    calm = [
        number[(table.get("profiled", 1.0) == 0) & (table.get("compiled") == 0) & table.has(*needed)]
        for number, table in zip(numbers, tables.values(), strict=True)
    ]
    counted = reduce(np.intersect1d, calm, shared)
    record: dict[str, Any] = {
        "world_size": world_size,
        "ranks": list(tables),
        "steps": len(steps),
        "coverage": len(shared) / len(steps) if len(steps) and len(tables) == world_size else 0.0,
        **dict.fromkeys(("slowdown", "speedup", "slowest", "share", "phase", "owner", "extra_seconds", "pattern")),
        **dict.fromkeys(("since_step", "uneven", "own_seconds", "waits", "phases", "elements", "first", "heat")),
        "slow": [],
    }
    # With accumulated gradients, ranks wait for each other only at an update.
    ends = np.flatnonzero(tables[0].at(counted).get("updates", 1.0) > 0)
    if len(ends) < FEWEST:
        return record
    starts, counted = np.append(0, ends[:-1] + 1), counted[: ends[-1] + 1]
    return record | _Joined({rank: table.at(counted) for rank, table in tables.items()}, starts).told(world_size)


@dataclass(frozen=True)
class _Straggling:
    """Which ranks are slow, and in what."""

    pattern: str
    slow: NDArray[np.bool_]  # rank by step
    lost: Values  # seconds of each step
    since: int | None = None  # place of a step
    uneven: str | None = None


class _Joined:
    """The steps that all ranks have, as the mean of those up to each update; arrays are (ranks, updates), in seconds.

    ``starts``: places of the first step for each update.
    """

    def __init__(self, tables: Mapping[int, StepTable], starts: NDArray[np.int64]) -> None:
        self._tables, self._starts, self.names = tables, starts, list(tables)
        self.steps = tables[0].get("step")[starts].astype(int).tolist()
        self.total = self.column("total")
        self.phases = {phase: self.column(phase) for phase in PHASES}
        self.waits = {phase: self.column(f"wait_{phase}") for phase in PHASES}
        if all(table.has(ON_DEVICE).all() for table in tables.values()):
            self._as_the_devices_saw_it()
        self.wait: Values = sum(self.waits.values(), 0 * self.total)
        self.phases = {phase: np.maximum(0.0, self.phases[phase] - self.waits[phase]) for phase in PHASES}
        self.own: Values = sum(self.phases.values(), 0 * self.total)
        self.sizes = next((sizes for name in SIZES if ((sizes := self.column(name)) > 0).all()), None)
        self._peak: Values = self.own.max(axis=0)
        self._views = [*self.phases.values(), self.own]  # a rank may stand out in a phase, and not in all its work

    def _as_the_devices_saw_it(self) -> None:
        """A host runs ahead of its GPU, and waits wherever it asks for a result. A GPU idles while its host works."""
        self.waits = dict.fromkeys(PHASES, 0 * self.total) | {"backward": self.column(DEVICE_WAIT)}
        self.total, idle = self.column(ON_DEVICE), self.column("device_idle")
        host = sum(self.phases[phase] for phase in HOST)
        shares = {phase: idle * self.phases[phase] / np.maximum(host, 1e-12) for phase in HOST}
        on_device = {phase: self.column(f"device_{phase}") for phase in PHASES if phase in DEVICE}
        self.phases = dict.fromkeys(PHASES, 0 * self.total) | shares | on_device

    def column(self, name: str) -> Values:
        values = [table.get(name) for table in self._tables.values()]
        return np.add.reduceat(values, self._starts, axis=1) / np.diff(self._starts, append=len(values[0]))

    def told(self, world_size: int) -> dict[str, Any]:
        """The entry in the record."""
        each = {str(rank): place for place, rank in enumerate(self.names)}
        phases, sizes = self.phases, self.sizes
        record: dict[str, Any] = {
            "own_seconds": {name: _mean(self.own[place]) for name, place in each.items()},
            "waits": {name: _mean(self.wait[place]) for name, place in each.items()},
            "phases": {rank: {one: _mean(phases[one][place]) for one in PHASES} for rank, place in each.items()},
            "elements": None if sizes is None else {name: _mean(sizes[place]) for name, place in each.items()},
        }
        here = {phase: _mean(self.waits[phase][0]) for phase in PHASES}
        if len(self.names) < 2 or not self.own.mean(axis=1).min() > 0:
            return record | {"first": {"waits": here, "exchange": None, "extra": {}}}
        judged, straggling = self, self.straggling()
        if straggling is None:
            judged = self._without_stalls()
            straggling = judged._growing() or judged._constant(often=USUAL) or judged._in_turns()
        slowdown = mean_ratio(self._peak.tolist(), self.own.mean(axis=0).tolist())
        record |= {"slowdown": slowdown.as_record() | {"n": slowdown.n}, "heat": self._heat()}
        exchange = _mean(self.wait.min(axis=0)) if len(self.names) == world_size else None
        record["first"] = {"waits": here, "exchange": exchange, "extra": judged._extra_of_first(straggling)}
        return record | judged._named(straggling)

    def straggling(self) -> _Straggling | None:
        """Who is slow and how; None where the ranks differ by no more than chance has it."""
        kinds = (self._growing, self._sized, self._constant, self._in_turns, partial(self._constant, mostly=0.0))
        return next(filter(None, (kind() for kind in kinds)), None)

    def _without_stalls(self) -> "_Joined":
        """The same with each rank's longest steps cut to a usual length: a stall hides no slow rank."""

        def cut(values: Values) -> Values:
            return np.asarray(np.minimum(values, np.quantile(values, USUAL, axis=1, keepdims=True)))

        calm = copy(self)
        calm.phases, calm.own = {phase: cut(values) for phase, values in self.phases.items()}, cut(self.own)
        calm._peak, calm._views = calm.own.max(axis=0), [*calm.phases.values(), calm.own]
        return calm

    def _growing(self) -> _Straggling | None:
        """The ranks that are slow in the last quarter, if they were much less so in the first."""
        count = len(self.steps)
        if count < FEWEST_TO_CHANGE or (seen := self._same(slice(count - count // 4, None))) is None:
            return None
        group, more = seen[0], _moderate(seen[1])
        quarters = np.array_split(more, 4)
        first, *between, end = (float(part.mean()) for part in quarters)
        chance = math.hypot(*(_error(part) for part in quarters[::3]))
        steady = all(after >= before - EARLY / 2 * end for before, after in pairwise((first, *between, end)))
        notable = end - CLEAR * _error(quarters[-1]) >= NOTABLE * np.array_split(self.own, 4, axis=1)[-1].mean()
        if first > EARLY * end or end - first < CLEAR * chance or not steady or not notable:
            return None
        parts = np.array_split(more, min(PARTS, count // 4))
        there = [part.mean() >= BEGUN * end for part in parts]
        begun = next(place for place in range(len(parts)) if place == len(parts) - 1 or all(there[place:]))
        return replace(self._always(group), pattern="growing", since=sum(map(len, parts[:begun])))

    def _constant(self, mostly: float = MOSTLY, often: float = 0.0) -> _Straggling | None:
        """The ranks that are slow on average, in so many of the steps, and lose so much of what is lost."""
        if (seen := self._same(slice(None), mostly)) is None or (seen[1] > 0).mean() < often:
            return None
        others = self.own[~seen[0]].mean(axis=0)
        return self._always(seen[0]) if _surely(others + np.maximum(seen[1], -0.9 * others), others) else None

    def _same(self, part: slice, mostly: float = MOSTLY) -> tuple[NDArray[np.bool_], Values] | None:
        """The ranks that are slow on average in a part of the run, and their extra work in each step.

        It must be more than a busy machine keeps now one rank from its core and now another. Where several phases show
        it, or all work, the clearest counts.
        """
        groups = []
        for values in self._views:
            if (group := _slow_ones(values[:, part])).any():
                more = values[group].mean(axis=0) - values[~group].mean(axis=0)
                lost = values.max(axis=0) - _middle(values)
                usual = float(values[~group].std(axis=1).mean()) * min(1.0, math.sqrt(SETTLED / len(self.steps)))
                if (mean := float(more[part].mean())) >= max(BEYOND * usual, mostly * float(lost[part].mean())):
                    groups.append((mean / max(usual, 1e-12), group, more))
        return max(groups, key=lambda one: one[0])[1:] if groups else None

    def _always(self, group: NDArray[np.bool_]) -> _Straggling:
        slow = np.repeat(group[:, None], len(self.steps), axis=1)
        return _Straggling("constant", slow, self._peak - self._without(slow))

    def _sized(self) -> _Straggling | None:
        """The ranks that are slow where their batches are large, and what they lose while these are not alike."""
        if (sizes := self.sizes) is None:
            return None
        away, work = sizes - sizes.mean(axis=0), _moderate(self.own - self.own.mean(axis=0))
        if np.abs(away).mean() < SIZED * sizes.mean():
            return None
        slope = float((away * work).sum() / (away**2).sum())
        left = ((work - slope * away) ** 2).sum() / max((work**2).sum(), 1e-300)
        if left > 1 - REGULAR or not FLATTEST <= slope * sizes.mean() / self.own.mean() <= STEEPEST:
            return None
        lost = self._peak - np.asarray((self.own - slope * away).max(axis=0))
        return (
            replace(self._late(self.own), lost=lost, uneven="batches")
            if _surely(self._peak, self._peak - lost)
            else None
        )

    def _in_turns(self) -> _Straggling | None:
        """The ranks that are slow in the same steps of a period, or without a rule and always in one phase."""
        if len(self.steps) < FEWEST_TO_CHANGE:
            return None
        views = [values for values in self._views if self._is_periodic(values)] or [self.own] * self._is_concentrated()
        values = max(views, key=lambda each: float((each.max(axis=0) - _middle(each)).mean()), default=None)
        straggling = None if values is None else self._late(values)
        return straggling if straggling and _surely(self._peak, self._peak - straggling.lost) else None

    def _late(self, values: Values) -> _Straggling:
        """Which rank is the last one in a step, where that is more than chance: one in turn, or always the same."""
        late = values.max(axis=0) - _middle(values)
        slow = (values == values.max(axis=0)) & (late >= np.quantile(late, USUAL) / 2)
        if (same := slow.sum(axis=1) >= SAME * slow.sum()).any():
            return self._always(same)
        return _Straggling("alternating", slow, self._peak - self._without(slow))

    def _without(self, slow: NDArray[np.bool_]) -> Values:
        """The longest work in each step if slow ranks worked as long as another did in the step before or after.

        So some rank is still the last one by chance, as it would be.
        """
        near = np.roll(np.arange(len(self.steps)), 1)
        near[0] = 1
        usual = self.own[np.argmin(slow, axis=0), np.arange(len(self.steps))][near]
        return np.asarray(np.where(slow, usual, self.own).max(axis=0))

    def _is_periodic(self, values: Values) -> bool:
        """Whether the same ranks are slow in the same steps of a period, which explains most of it beyond chance."""
        away = _moderate(values - values.mean(axis=0))
        away = away - away.mean(axis=1, keepdims=True)
        count, whole = away.shape[1], float((away**2).sum())
        for period in range(2, min(LONGEST, count // REPEATS) + 1):
            parts = (away[:, start::period] for start in range(period))
            between = sum(part.shape[1] * float((part.mean(axis=1) ** 2).sum()) for part in parts)
            if whole > 0 and 1 - (1 - between / whole) * (count - 1) / (count - period) >= REGULAR:
                return True
        return False

    def _is_concentrated(self) -> bool:
        """Whether a typical step loses much in a phase that is otherwise a small part of the work."""
        if float(np.median(self._peak - _middle(self.own))) < TYPICAL * self.own.mean():
            return False
        extra = self._extra(self.own == self._peak, self.phases)
        low = {phase: _mean(values.min(axis=0)) for phase, values in self.phases.items()}
        whole, base = sum(max(0.0, value) for value in extra.values()), sum(low.values())
        return any(extra[phase] / whole - low[phase] / base >= CONCENTRATED for phase in PHASES) if base else False

    def _extra(self, slow: NDArray[np.bool_], values: Mapping[str, Values]) -> dict[str, float]:
        """How much more of each the slow ranks have than the others, per step."""
        weights = slow / np.maximum(slow.sum(axis=0), 1) - ~slow / np.maximum((~slow).sum(axis=0), 1)
        weights = weights * (slow.any(axis=0) & ~slow.all(axis=0))
        return {name: float((each * weights).sum()) / slow.shape[1] for name, each in values.items()}

    def _extra_of_first(self, late: _Straggling | None) -> dict[str, float]:
        """Rank 0's own extra work by phase, per step, if it is among the slow ones."""
        # Only the steps in which it is slow.
        slow = late.slow & late.slow[:1] if late else np.zeros((1, 1), dtype=bool)
        return {phase: max(0.0, more) for phase, more in self._extra(slow, self.phases).items()} if slow.any() else {}

    def _named(self, straggling: _Straggling | None) -> dict[str, Any]:
        if straggling is None:
            return {}
        often = (self.own == self._peak).mean(axis=1)
        slow = [rank for rank, each in zip(self.names, straggling.slow, strict=True) if each.any()]
        first = int(np.argmax(np.where(straggling.slow.any(axis=1), often, -1.0)))
        late = straggling.slow.any(axis=0)
        part = slice(straggling.since, None)  # a growing delay is averaged over the steps since it began
        extra = self._extra(straggling.slow[:, part], {name: each[:, part] for name, each in self.phases.items()})
        phase = max(extra, key=lambda name: extra[name])
        columns = sorted({name for one in self._tables.values() for name in one.columns if name.startswith(OWNED)})
        hooks = {name: self.column(name)[:, part] for name in columns} if phase == "callbacks" else {}
        owned = self._extra(straggling.slow[:, part], hooks)
        owner = max(owned, key=lambda name: owned[name], default=None)
        gaps = sum(self.column(gap)[0].mean() for gap in GAPS)
        length = self.total.mean(axis=0) + gaps
        speedup = mean_ratio(length.tolist(), np.maximum(length - straggling.lost, 1e-3 * length).tolist())
        if straggling.pattern != "alternating":
            group = straggling.slow[:, 0]
            more = self.own[group].max(axis=0) - self.own[~group].max(axis=0)
            late = more >= max(0.0, float(np.quantile(more, USUAL))) / 4
        return {
            "pattern": straggling.pattern,
            "slow": slow,
            "slowest": self.names[first],
            "share": float(late.mean()),
            "phase": phase,
            "owner": owner,
            "extra_seconds": sum(extra.values()),
            "since_step": None if straggling.since is None else self.steps[straggling.since],
            "uneven": straggling.uneven,
            "speedup": speedup.as_record() | {"n": speedup.n},
        }

    def _heat(self) -> dict[str, Any]:
        """Own work divided by the mean rank's, in at most ``COLUMNS`` parts of the run."""
        places = np.array_split(np.arange(len(self.steps)), min(COLUMNS, len(self.steps)))
        means = np.array([self.own[:, part].mean(axis=1) for part in places]).T
        shares = np.round(means / np.maximum(means.mean(axis=0), 1e-12), 4)
        return {"steps": [self.steps[part[0]] for part in places], "ranks": shares.tolist()}


def _slow_ones(work: Values) -> NDArray[np.bool_]:
    """Which ranks are slow, at most half: their mean work is nearer to the slowest rank's than to a usual one's."""
    over = work.mean(axis=1)
    over = over - np.sort(over)[(len(over) - 1) // 2]
    return np.asarray((over > over.max() / 2) & (over > 0))


def _middle(work: Values) -> Values:
    """A typical rank's value in each step: the median; of two ranks the lower value."""
    return np.asarray(np.sort(work, axis=0)[(len(work) - 1) // 2])


def _surely(above: Values, below: Values) -> bool:
    """Whether the first are longer by a notable share, and not by chance."""
    low = mean_ratio(above.tolist(), below.tolist()).at(SURE).low
    return low is not None and low >= 1 + NOTABLE


def _error(values: Values) -> float:
    """The standard error of the mean of values around a line, in order of time."""
    places = np.arange(len(values))
    away = values - np.polyval(np.polyfit(places, values, 1), places)
    return float(away.std(ddof=2)) / math.sqrt(max(2.0, independent(away.tolist())))


def _moderate(values: Values) -> Values:
    """The values with extreme ones, on either side, clipped to what is typical."""
    return np.asarray(np.clip(values, *np.quantile(values, (TAIL, 1 - TAIL))))


def _mean(values: Values) -> float:
    return float(values.mean())
