"""What follows from a record: which way is fastest, how times grow, and how far profilers disagree."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit
from scipy.stats import linregress

from strobe.bench.harness.results import CellRecord, by_round, measured
from strobe.bench.suites.convolution import suite
from strobe.measure.statistics import Interval
from strobe.present.format import counted, estimate


@dataclass(frozen=True)
class Growth:
    """How times grow with the side n of an image: seconds = c * n^p, a straight line in logarithms.

    Small images take about the time of the call itself, whatever their size: with such among them p comes out too low,
    and ``local`` is nearer to what larger ones will take. Caches that overflow raise both.
    """

    exponent: float  # p, by least squares in logarithms over all sizes
    interval: tuple[float, float] | None  # 95%, if the points scatter about one line; None for two sizes
    local: float  # the exponent between the two largest sizes
    farthest: float  # how many times above or below the line the farthest point lies


def fit_growth(times: Mapping[int, float]) -> Growth | None:
    """A power fitted to seconds by side; None with fewer than two sides."""
    if len(times) < 2:
        return None
    x, y = (np.log(np.asarray(values, dtype=np.float64)) for values in zip(*sorted(times.items()), strict=True))
    line = linregress(x, y)
    slope = float(line.slope)
    width = float(stdtrit(len(x) - 2, 0.975) * line.stderr) if len(x) > 2 else 0.0
    interval = (slope - width, slope + width) if len(x) > 2 else None
    farthest = math.exp(np.abs(y - line.intercept - slope * x).max())
    return Growth(slope, interval, float((y[-1] - y[-2]) / (x[-1] - x[-2])), farthest)


def shares(own: Mapping[str, float]) -> dict[str, float]:
    """Each function's share of the sum of own seconds, which must be above 0."""
    whole = sum(own.values())
    return {name: seconds / whole for name, seconds in own.items()}


def total_variation(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The distance of two profiles, own seconds by function: half the sum of all differences between shares.

    It is the share of the time that would have to be given to other functions: 0 for equal shares, 1 where no function
    has time in both.
    """
    one, other = shares(first), shares(second)
    return sum(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in one.keys() | other.keys()) / 2


def corrected(own: float, received: float, made: float, a_call: float, of_called: float) -> float:
    """Own seconds by cProfile less what being timed added to the calls of a function, and to those by it; 0 at least.

    Args:
        own: with the time of functions in C that it calls, which pay in any case.
        received: calls of it, and of those in C.
        made: calls by it.
        a_call: seconds that being timed adds to a call; nothing is taken where noise makes it negative.
        of_called: the share of it that the called bears; its caller bears the rest.
    """
    return max(0.0, own - max(0.0, a_call) * (of_called * received + (1 - of_called) * made))


class Reading:
    """What was measured by a record of the suite."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.times: dict[str, dict[int, CellRecord]] = {}  # by implementation and side
        for cell in measured(record, suite.TIME):
            self.times.setdefault(cell["column"], {})[int(cell["row"])] = cell
        self.profilers = {cell["column"]: cell for cell in measured(record, suite.PROFILERS)}

    def common(self, *names: str) -> list[int]:
        """Sides at which all of these were measured."""
        sides = [set(self.times.get(name, {})) for name in names]
        return sorted(set.intersection(*sides)) if sides else []

    def faster(self, name: str, other: str, side: int) -> Interval | None:
        """How many times as fast an implementation is as another."""
        return by_round(self.times[name][side], self.times[other][side])

    def compared(self, name: str, other: str) -> list[str]:
        """Which is the faster, at the smallest and at the largest side where both were measured."""
        sentences = []
        sides = self.common(name, other)
        for side in dict.fromkeys([*sides[:1], *sides[-1:]]):
            speedup, pair = self.faster(name, other, side), (name, other)
            if speedup and (speedup["median"] or 0) < 1:
                speedup, pair = self.faster(other, name, side), (other, name)
            if speedup:
                words = f"{pair[0]} is {estimate(speedup)} times as fast as {pair[1]}{self.doubt(*pair, side)}"
                sentences.append(f"at {side}x{side} {words}")
        return sentences

    def doubt(self, name: str, other: str, side: int) -> str:
        """What must be said where a way that seems the faster may not be."""
        speedup = self.faster(name, other, side)
        if speedup is not None and speedup["low"] is None:
            return " (too few trials to tell)"
        return " (no measurable difference)" if speedup is None or speedup["low"] <= 1 else ""

    def factor(self, profiler: str) -> Interval | None:
        """How many times as long the work takes under a profiler."""
        if suite.PLAIN not in self.profilers or profiler not in self.profilers:
            return None
        return by_round(self.profilers[suite.PLAIN], self.profilers[profiler])

    def seconds(self, profiler: str) -> float:
        """What the work takes under it, or alone; nan where that is not known."""
        return float(self.profilers[profiler]["seconds"]["median"]) if profiler in self.profilers else math.nan

    def figure(self, profiler: str, name: str) -> float | None:
        """A figure of a profiler's cell."""
        figures = self.profilers[profiler]["figures"] if profiler in self.profilers else {}
        return float(figures[name]["median"]) if name in figures else None

    def own(self, profiler: str) -> dict[str, float]:
        """Own seconds of each part; of ``PLAIN`` those that were timed one by one. Empty where nothing is known."""
        seconds = {part: own for part in suite.PARTS if (own := self.figure(profiler, part)) is not None}
        return seconds if sum(seconds.values()) > 0 else {}

    def distance(self, first: str, second: str) -> float | None:
        """How far the shares of the parts differ."""
        one, other = self.own(first), self.own(second)
        return total_variation(one, other) if one and other else None

    def a_call(self) -> float | None:
        """Seconds that cProfile adds to a call."""
        calls = self.figure(suite.EVENTS, suite.CALLS)
        return (
            (self.seconds(suite.EVENTS) - self.seconds(suite.PLAIN)) / calls
            if calls and suite.PLAIN in self.profilers
            else None
        )

    def less_calls(self) -> dict[str, float]:
        """Own seconds of each part by cProfile, less what calls pay; empty where that is not known."""
        own, a_call, of_called, less = self.own(suite.EVENTS), self.a_call(), self.of_called(), dict[str, float]()
        for part, seconds in own.items():
            received, made = (self.figure(suite.EVENTS, f"{what}{part}") for what in (suite.RECEIVED, suite.MADE))
            if a_call is None or of_called is None or received is None or made is None:
                return {}
            less[part] = corrected(seconds, received, made, a_call, of_called)
        return less

    def of_called(self) -> float | None:
        """The share of the price of a call by cProfile that the function called bears."""
        callee, caller = (self.figure(suite.EVENTS, name) for name in (suite.TO_CALLEE, suite.TO_CALLER))
        return callee / (callee + caller) if callee and caller is not None else None


def conclusions(record: Mapping[str, Any]) -> list[str]:
    """Which implementation is fastest, what profilers cost, and how far they disagree."""
    reading = Reading(record)
    sentences = _fastest(reading)
    if native := reading.compared(suite.NATIVE, suite.CONV2D):
        sentences.append(f"On one thread {'; '.join(native)}.")
    if costs := [f"{name} {estimate(factor)}" for name in suite.LOOKING if (factor := reading.factor(name))]:
        sentences.append(f"Under a profiler im2col takes this many times as long: {', '.join(costs)}.")
    if (between := reading.distance(suite.EVENTS, suite.SAMPLES)) is not None:
        sentences.append(f"{suite.EVENTS} and {suite.SAMPLES} disagree about {between:.1%} of im2col's time.")
    if away := [
        f"{name} by {off:.1%}" for name in suite.LOOKING if (off := reading.distance(name, suite.PLAIN)) is not None
    ]:
        sentences.append(f"From what its parts take when they are timed one by one they are off: {', '.join(away)}.")
    return sentences


def _fastest(reading: Reading) -> list[str]:
    """At the largest side that all share, and at the largest of any."""
    sentences = []
    sides = {
        *reading.common(*reading.times)[-1:],
        *sorted({side for cells in reading.times.values() for side in cells})[-1:],
    }
    for side in sorted(sides):
        cells = {name: measured[side] for name, measured in reading.times.items() if side in measured}
        first, *others = sorted(cells, key=lambda name: cells[name]["seconds"]["median"])
        seconds = estimate({end: 1e3 * cells[first]["seconds"][end] for end in ("median", "low", "high")})
        doubt = reading.doubt(first, others[0], side) if others else ""
        beside = [
            f", {estimate(faster)} times as fast as {other}{doubt}"
            for other in others[:1]
            if (faster := reading.faster(first, other, side))
        ]
        verdict = f"{first} {'has the shortest time' if doubt else 'is the fastest'} of {counted(len(cells), 'way')}"
        sentences.append(f"At {side}x{side} {verdict}: {seconds} ms{''.join(beside)}.")
    return sentences
