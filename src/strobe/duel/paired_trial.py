"""Two trainings that take turns: which one is faster, and how certain that is."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from strobe.duel.training import TakesTurns
from strobe.measure.statistics import FALSE_ALARM, FEWEST, Estimate, is_over, looks, sequential
from strobe.process.fork import Failure

STEPS = 2  # that fit into a turn of either side
UNEVEN, LONGER, LONGEST = 1.5, 4.0, 5.0  # times a side's slowest turn, from where all are so much longer; seconds
FALSE = 0.02  # of duels of equals that are to be told may find the one side faster, and as many the other

Side = Literal["incumbent", "candidate"]


@dataclass(frozen=True)
class Defeat(Failure):
    """A duel that could not finish.

    Attributes:
        side: the side that failed.
    """

    side: Side = "candidate"


@dataclass(frozen=True)
class Duel:
    """The result of the turns of two trainings.

    Attributes:
        ratio: the candidate's speed over the incumbent's, with its interval over the quads of turns.
        ours: images/s of the candidate's turns.
        theirs: images/s of the incumbent's turns.
    """

    ratio: Estimate
    ours: list[float]
    theirs: list[float]


def duel(
    incumbent: TakesTurns,
    candidate: TakesTurns,
    *,
    turns: int = 6,
    seconds: float = 1.0,
    early: bool = True,
    enough: Callable[[Estimate], bool] | None = None,
    alpha: float = FALSE_ALARM,
    deadline: float | None = None,
    until: float | None = None,
    seed: int | None = None,
    tell: Callable[[float], None] = lambda _: None,
) -> Duel | Defeat:
    """Let two trainings take turns, and compare them in quads of turns: A B B A, or B A A B, at random.

    A steady drift of the machine cancels out within a quad. A pair before the first quad is not counted: one side
    may have been warm for long, while the other has trained only a few steps. Where the first turns of a side differ
    widely, such as by samples that come in bursts, all turns become longer, and counting begins anew.
    :func:`strobe.measure.statistics.sequential` decides after ``turns`` of each side, twice and four times as many; or
    not ``early``, once; or where ``enough`` tells from the ratio, after half of ``turns`` quads and after all.

    Args:
        turns: at least 4.
        seconds: of a turn; more if one side needs more for two steps.
        alpha: the share of trials of equals that may find the candidate faster.
        deadline: of ``time.monotonic()``; no quad begins after it, except for the first two.
        until: of ``time.monotonic()``, when longer turns must have ended, or they stay as they are.
        tell: called before each turn, with the seconds that all turns take from there on, at most.
    """
    sides: dict[Side, TakesTurns] = {"incumbent": incumbent, "candidate": candidate}
    rates: dict[Side, list[float]] = {"incumbent": [], "candidate": []}
    random, planned = Random(seed), max(FEWEST, -(-turns // 2))
    asked = looks(planned)[:2] if enough else looks(planned) if early else looks(planned)[1:2]
    quad, begun = 0, False
    while quad < asked[-1]:
        if quad >= FEWEST and deadline is not None and time.monotonic() >= deadline:
            break
        first, second = random.sample(list(sides), 2)
        before = [] if begun else [first, second]  # turns that are not counted
        order = [*before, first, second, second, first]
        for place, side in enumerate(order):
            tell((len(order) - place + 4 * (asked[-1] - quad - 1)) * seconds)
            turn = sides[side].turn(seconds)
            if isinstance(turn, Failure):
                return Defeat(turn.reason, turn.memory, side)
            rates[side].append(turn.rate)
            seconds = max(seconds, STEPS * turn.seconds / turn.steps)
        if not begun:
            begun = True
            ends = time.monotonic() + 4 * LONGER * seconds * (FEWEST if early else asked[-1])
            fit = LONGER * seconds <= LONGEST and (until is None or ends <= until)
            if fit and any(max(some) > UNEVEN * min(some) for some in rates.values()):
                seconds *= LONGER
                rates = {"incumbent": [], "candidate": []}
                continue
            rates = {side: some[1:] for side, some in rates.items()}
        quad += 1
        if quad in asked:
            ratio = sequential(quads(rates["candidate"], rates["incumbent"]), asked, alpha)
            if enough(ratio) if enough else is_over(ratio, asked):
                break
    ratio = sequential(quads(rates["candidate"], rates["incumbent"]), asked, alpha)
    return Duel(ratio, rates["candidate"], rates["incumbent"])


def is_told(ratio: Estimate) -> bool:
    """Whether one side is measurably faster."""
    return ratio.verdict in ("faster", "slower")


def alone(training: TakesTurns, *, turns: int = 6, seconds: float = 2.0) -> list[float] | Failure:
    """Images/s of the turns of one training that has no memory beside another; machines drift meanwhile."""
    if isinstance(started := training.start(), Failure):
        return started
    rates = []
    for _ in range(turns):
        turn = training.turn(seconds)
        if isinstance(turn, Failure):
            return turn
        rates.append(turn.rate)
    return rates


def quads(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """The one side's rate over the other's, of each quad of turns, from the rates of both sides' turns."""
    halves = [each[half::2] for each in (ours, theirs) for half in (0, 1)]
    return [math.sqrt(our * ours / (their * theirs)) for our, ours, their, theirs in zip(*halves, strict=True)]
