"""What follows from a record: growth, how far profilers disagree, and answers to the source document's questions."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit
from scipy.stats import linregress

from strobe.bench.harness.results import by_round
from strobe.bench.suites.convolution.profiles import Profile, Stack
from strobe.bench.suites.convolution.suite import (
    CALLS,
    CONV2D,
    EVENTS,
    IM2COL,
    LOOKING,
    LOOPS,
    NATIVE,
    PARTS,
    PLAIN,
    RECURSIVE,
    REFERENCE,
    SAMPLES,
    TIME,
    TIMER,
    TO_CALLEE,
    TO_CALLER,
    VIEW,
    WINDOW_SUMS,
)
from strobe.measure.statistics import Interval
from strobe.present.format import estimate as ratio
from strobe.present.format import percent

Cell = Mapping[str, Any]  # of results.json
UNKNOWN = "Not known, for too little of it was measured."
_, _INDICES, _REST = PARTS


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


def own_of_parts(own: Mapping[Stack, float]) -> dict[str, float]:
    """Own seconds of each of ``PARTS``; those of functions in C are their callers'."""
    found = dict.fromkeys(PARTS, 0.0)
    for stack, seconds in own.items():
        name = next((name for name in reversed(stack) if not name.startswith("<")), stack[-1])
        function = name.rpartition("(")[2].rstrip(")")
        found[function if function in found else _REST] += seconds
    return found


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


def corrected(profile: Profile, a_call: float, of_called: float) -> dict[Stack, float]:
    """Own seconds in a profile by cProfile less what being timed added; nothing is taken beyond 0.

    Args:
        profile: One in which functions in C were timed, for they pay in any case.
        a_call: Seconds that being timed adds to a call; nothing is taken where noise makes it negative.
        of_called: The share of it that the function called bears; its caller bears the rest.
    """
    a_call = max(0.0, a_call)
    paid = {stack: a_call * of_called * count for stack, count in profile.calls.items()}
    for stack, count in profile.calls.items():
        if stack[:-1] in paid:
            paid[stack[:-1]] += a_call * (1 - of_called) * count
    return {stack: max(0.0, seconds - paid.get(stack, 0.0)) for stack, seconds in profile.own.items()}


class Reading:
    """What was measured by a record of the suite."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.times: dict[str, dict[int, Cell]] = {}  # by implementation and side
        self.asked: dict[str, list[int]] = {}  # sides at which an implementation was to be measured
        self.profilers: dict[str, Cell] = {}
        self.lacking = [cell for cell in record["cells"] if cell["status"] == "failed"]
        for cell in record["cells"]:
            name = cell["column"]
            if cell["table"] == TIME:
                self.asked.setdefault(name, []).append(int(cell["row"]))
                if cell["visits"]:
                    self.times.setdefault(name, {})[int(cell["row"])] = cell
            elif cell["visits"]:
                self.profilers[name] = cell

    def failed(self, name: str) -> str:
        """Why nothing is known of an implementation or profiler; nothing where something is, or where it waits."""
        known = name in self.times or name in self.profilers
        return next((str(cell["error"]) for cell in self.lacking if cell["column"] == name and not known), "")

    def common(self, *names: str) -> list[int]:
        """Sides at which all of these were measured."""
        found = [set(self.times.get(name, {})) for name in names]
        return sorted(set.intersection(*found)) if found else []

    def growth(self, name: str, sides: Sequence[int] | None = None) -> Growth | None:
        """The power fitted to an implementation's medians, at these sides or all."""
        cells = self.times.get(name, {})
        return fit_growth({side: cells[side]["seconds"]["median"] for side in (cells if sides is None else sides)})

    def faster(self, name: str, other: str, side: int) -> Interval | None:
        """How many times as fast an implementation is as another."""
        return by_round(self.times[name][side], self.times[other][side])

    def compared(self, name: str, other: str, *, ends: bool = False) -> list[str]:
        """Which is the faster at the largest side where both were measured; with ``ends`` at the smallest too."""
        told = []
        sides = self.common(name, other)
        for side in dict.fromkeys([*sides[: int(ends)], *sides[-1:]]):
            found, pair = self.faster(name, other, side), (name, other)
            if found and (found["median"] or 0) < 1:
                found, pair = self.faster(other, name, side), (other, name)
            if found:
                words = f"{pair[0]} is {ratio(found)} times as fast as {pair[1]}{self.doubt(*pair, side)}"
                told.append(f"at {side}x{side} {words}")
        return told

    def doubt(self, name: str, other: str, side: int) -> str:
        """What must be said where a way that seems the faster may not be."""
        found = self.faster(name, other, side)
        if found is not None and found["low"] is None:
            return ", by too few trials to tell"
        unsure = found is None or found["low"] <= 1
        return ", which is no difference that the interval would show" if unsure else ""

    def factor(self, profiler: str) -> Interval | None:
        """How many times as long the work takes under a profiler."""
        if PLAIN not in self.profilers or profiler not in self.profilers:
            return None
        return by_round(self.profilers[PLAIN], self.profilers[profiler])

    def seconds(self, profiler: str) -> float:
        """What the work takes under it, or alone; nan where that is not known."""
        return float(self.profilers[profiler]["seconds"]["median"]) if profiler in self.profilers else math.nan

    def figure(self, profiler: str, name: str) -> float | None:
        """A figure of a profiler's cell."""
        figures = self.profilers[profiler]["figures"] if profiler in self.profilers else {}
        return float(figures[name]["median"]) if name in figures else None

    def own(self, profiler: str) -> dict[str, float]:
        """Own seconds of each part; of ``PLAIN`` those that were timed one by one. Empty where nothing is known."""
        found = {part: own for part in PARTS if (own := self.figure(profiler, part)) is not None}
        return found if sum(found.values()) > 0 else {}

    def distance(self, first: str, second: str) -> float | None:
        """How far the shares of the parts differ."""
        one, other = self.own(first), self.own(second)
        return total_variation(one, other) if one and other else None

    def of_called(self) -> float | None:
        """The share of the price of a call by cProfile that the function called bears."""
        callee, caller = (self.figure(EVENTS, name) for name in (TO_CALLEE, TO_CALLER))
        return callee / (callee + caller) if callee and caller is not None else None


def conclusions(record: Mapping[str, Any]) -> list[str]:
    """Which implementation is fastest, what profilers cost, and how far they disagree."""
    found = Reading(record)
    told = _fastest(found)
    if native := found.compared(NATIVE, CONV2D, ends=True):
        told.append(f"The native operator against torch, both on one thread: {'; '.join(native)}.")
    if costs := [f"{name} {ratio(factor)}" for name in LOOKING if (factor := found.factor(name))]:
        told.append(f"Under a profiler im2col takes this many times as long: {', '.join(costs)}.")
    if (between := found.distance(EVENTS, SAMPLES)) is not None:
        told.append(f"{EVENTS} and {SAMPLES} disagree about {between:.1%} of im2col's time.")
    if away := [f"{name} by {off:.1%}" for name in LOOKING if (off := found.distance(name, PLAIN)) is not None]:
        told.append(f"From what its parts take when they are timed one by one they are off: {', '.join(away)}.")
    return told


def questions(record: Mapping[str, Any]) -> dict[str, str]:
    """The source document's five questions with their answers."""
    found = Reading(record)
    asked: dict[str, tuple[Callable[[Reading], list[str]], Sequence[str]]] = {
        "How do four loops compare with SciPy, on larger images too?": (_loops, (LOOPS, REFERENCE)),
        "Is the sum of each window's products by NumPy faster than four loops?": (_sums, (WINDOW_SUMS, LOOPS)),
        "And im2col?": (_im2col, (IM2COL, LOOPS, WINDOW_SUMS, REFERENCE)),
        "What does the profile of im2col tell?": (_profile, (PLAIN, *LOOKING)),
        "What of the last implementation, the recursive one?": (_recursive, (RECURSIVE, IM2COL, VIEW, REFERENCE)),
    }
    told = {}
    for number, (question, (answer, names)) in enumerate(asked.items(), 1):
        missing = [f"{name} failed: {error.rstrip('.')}." for name in names if (error := found.failed(name))]
        told[f"Q{number} {question}"] = " ".join([*(answer(found) or [UNKNOWN]), *missing])
    return told


def _fastest(found: Reading) -> list[str]:
    """At the largest side that all share, and at the largest of any."""
    told = []
    sides = {*found.common(*found.times)[-1:], *sorted({side for cells in found.times.values() for side in cells})[-1:]}
    for side in sorted(sides):
        cells = {name: measured[side] for name, measured in found.times.items() if side in measured}
        first, *others = sorted(cells, key=lambda name: cells[name]["seconds"]["median"])
        doubt = found.doubt(first, others[0], side) if others else ""
        against = dict.fromkeys([*others[:1], *(other for other in (LOOPS, REFERENCE) if other in others)])
        ratios = [
            f"{ratio(faster)} times as fast as {other}{doubt * (other == others[0])}"
            for other in against
            if (faster := found.faster(first, other, side))
        ]
        among = f"all {len(cells)}" if len(cells) == len(found.asked) else f"{len(cells)} of {len(found.asked)}"
        seconds = ratio({end: 1e3 * cells[first]["seconds"][end] for end in ("median", "low", "high")})
        verdict = f"{first} {'has the shortest time' if doubt else 'is fastest'}: {seconds} ms"
        told.append(f"At {side}x{side}, where {among} ways were measured, {'; '.join([verdict, ', '.join(ratios)])}.")
    return told


def _compare(found: Reading, name: str, *others: str, ends: bool = False) -> list[str]:
    return [f"A{words[1:]}." for other in others for words in found.compared(name, other, ends=ends)]


def _loops(found: Reading) -> list[str]:
    told = _compare(found, LOOPS, REFERENCE, ends=True)
    sides = found.common(LOOPS, REFERENCE)
    grown = [f"{fit.exponent:.2f} ({name})" for name in (LOOPS, REFERENCE) if (fit := found.growth(name, sides))]
    if grown:
        told.append(
            f"Over sides of {sides[0]:,} to {sides[-1]:,} pixels the time grows with the side to the power of "
            f"{' and '.join(grown)}; 2 would be as the number of pixels, and less means that calls cost much however "
            "small the image is."
        )
    return told


def _sums(found: Reading) -> list[str]:
    told = _compare(found, WINDOW_SUMS, LOOPS, ends=True)
    why = "It leaves the two loops over the kernel to NumPy, and pays for two calls of it for each pixel."
    return [*told, why] if told else []


def _im2col(found: Reading) -> list[str]:
    told = _compare(found, IM2COL, LOOPS, WINDOW_SUMS, REFERENCE)
    if told and (own := found.own(PLAIN)):
        told.append(
            f"The product of matrices, with all else besides making the matrix, is {percent(shares(own)[_REST])} "
            "of its time: a fast product gains nothing while the matrix is made element by element."
        )
    return told


def _profile(found: Reading) -> list[str]:
    names = {EVENTS: EVENTS, SAMPLES: SAMPLES, TIMER: TIMER, PLAIN: "timing it directly"}
    known = {by: shares(own)[_INDICES] for name, by in names.items() if (own := found.own(name))}
    if not known:
        return []
    said = ", ".join(f"{percent(share)} by {by}" for by, share in known.items())
    told = [f"{_INDICES} has this share of the time, with what it calls in C: {said}."]
    if calls := found.figure(EVENTS, CALLS):
        each = calls / found.profilers[EVENTS]["images"]
        told.append(f"{each:,.0f} calls are timed for one image of 7x7: the profile tells which of them to get rid of.")
        if factor := found.factor(EVENTS):
            told.append(
                f"How long they take it tells less well, for {EVENTS} makes it all {ratio(factor)} times as long."
            )
    return [*told, *(f"Rid of them, by taking whole rows: {words}." for words in found.compared(RECURSIVE, IM2COL))]


def _recursive(found: Reading) -> list[str]:
    told = _compare(found, RECURSIVE, IM2COL, VIEW, REFERENCE)
    same = "It gives the same result, in any number of dimensions, and makes each plane's windows once."
    copies = (
        f"It still copies each pixel as often as the kernel has elements; {VIEW} copies none. The document's own "
        "falls back to the naive way for an image, makes the same windows again and again beyond two dimensions, and "
        "convolves a global image instead of its argument; this one does not."
    )
    return [same, *told, copies] if told else []
