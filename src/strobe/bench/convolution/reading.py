"""The suite's figures, by what they are about, from its record alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strobe.bench.convolution.disagreement import Looking, total_variation
from strobe.bench.convolution.event_profile import Price
from strobe.bench.convolution.study import CALLS, LOOKING, PARTS, PLAIN, PROFILERS, TIME, TO_CALLEE, TO_CALLER
from strobe.bench.harness.results import by_round
from strobe.bench.harness.wording import ratio
from strobe.measure.statistics import Interval

Cell = Mapping[str, Any]  # of results.json


@dataclass(frozen=True)
class Reading:
    """What was measured; of what failed or waits there is nothing."""

    times: Mapping[str, Mapping[int, Cell]]  # by implementation and side
    profilers: Mapping[str, Cell]
    asked: Mapping[str, Sequence[int]]  # sides at which an implementation was to be measured
    lacking: Sequence[Cell]  # that failed

    def failed(self, name: str) -> str:
        """Why nothing is known of an implementation or profiler; nothing where something is, or where it waits."""
        if name in self.times or name in self.profilers:
            return ""
        return next((str(cell["error"]) for cell in self.lacking if cell["column"] == name), "")

    def common(self, *names: str) -> list[int]:
        """Sides at which all of these were measured."""
        found = [set(self.times.get(name, {})) for name in names]
        return sorted(set.intersection(*found)) if found else []

    def at(self, side: int) -> dict[str, Cell]:
        """What was measured at a side, the fastest first."""
        cells = {name: found[side] for name, found in self.times.items() if side in found}
        return dict(sorted(cells.items(), key=lambda pair: pair[1]["seconds"]["median"]))

    def faster(self, name: str, other: str, side: int) -> Interval | None:
        """How many times as fast an implementation is as another."""
        return by_round(self.times[name][side], self.times[other][side])

    def compared(self, name: str, other: str, side: int) -> str:
        """The same in words, whichever is the faster; nothing where it is not known."""
        found = self.faster(name, other, side)
        if found is None:
            return ""
        if (found["median"] or 0) < 1:
            name, other, found = other, name, self.faster(other, name, side)
        return f"{name} is {ratio(found)} times as fast as {other}{self.doubt(name, other, side)}"

    def doubt(self, name: str, other: str, side: int) -> str:
        """What must be said where a way that seems the faster may not be."""
        found = self.faster(name, other, side)
        if found is not None and found["low"] is None:
            return ", by too few visits to tell"
        unsure = found is None or found["low"] <= 1
        return ", which is no difference that the interval would show" if unsure else ""

    def factor(self, profiler: str) -> Interval | None:
        """How many times as long the work takes under a profiler."""
        if PLAIN not in self.profilers or profiler not in self.profilers:
            return None
        return by_round(self.profilers[PLAIN], self.profilers[profiler])

    def own(self, profiler: str) -> dict[str, float]:
        """Own seconds of each part; of ``PLAIN`` those that were timed one by one. Empty where nothing is known."""
        figures = self.profilers[profiler]["figures"] if profiler in self.profilers else {}
        found = {part: figures[part]["median"] for part in PARTS if part in figures}
        return found if sum(found.values()) > 0 else {}

    def distance(self, first: str, second: str) -> float | None:
        """How far the shares of the parts differ; see :func:`strobe.bench.convolution.disagreement.total_variation`."""
        one, other = self.own(first), self.own(second)
        return total_variation(one, other) if one and other else None

    def calls(self, profiler: str) -> int | None:
        """How many a profiler timed; None of one that does not count."""
        figures = self.profilers[profiler]["figures"] if profiler in self.profilers else {}
        return round(figures[CALLS]["median"]) if CALLS in figures else None

    def looking(self, profiler: str) -> Looking | None:
        """What a profiler cost the work."""
        if PLAIN not in self.profilers or profiler not in self.profilers:
            return None
        without, under = (self.profilers[name]["seconds"]["median"] for name in (PLAIN, profiler))
        return Looking(without, under, self.calls(profiler))

    def price(self, profiler: str) -> Price | None:
        """What a call of an empty function pays for being timed."""
        figures = self.profilers[profiler]["figures"] if profiler in self.profilers else {}
        if TO_CALLEE not in figures or TO_CALLER not in figures:
            return None
        return Price(figures[TO_CALLEE]["median"], figures[TO_CALLER]["median"])

    @property
    def looked(self) -> list[str]:
        """Profilers whose shares are known."""
        return [name for name in LOOKING if self.own(name)]


def read(record: Mapping[str, Any]) -> Reading:
    """The figures of a record of the suite."""
    times: dict[str, dict[int, Cell]] = {}
    asked: dict[str, list[int]] = {}
    profilers = {}
    for cell in record["cells"]:
        if cell["table"] == TIME:
            asked.setdefault(cell["column"], []).append(int(cell["row"]))
        if cell["visits"] and cell["table"] == TIME:
            times.setdefault(cell["column"], {})[int(cell["row"])] = cell
        elif cell["visits"] and cell["table"] == PROFILERS:
            profilers[cell["column"]] = cell
    return Reading(times, profilers, asked, [cell for cell in record["cells"] if cell["status"] == "failed"])


def milliseconds(cell: Cell) -> str:
    """``1.23 (1.20 to 1.26) ms``."""
    return f"{ratio({end: 1e3 * value for end, value in cell['seconds'].items() if end != 'spread'})} ms"
