"""Two trainings that take turns: which one is faster, and how certain that is."""

import time
from dataclasses import dataclass
from typing import Literal, Protocol

from strobe.measure.statistics import FEWEST, PATIENT, Estimate, Verdict, is_over, paired
from strobe.measure.timing import Block, mirrored
from strobe.process.fork import Failure

STEPS = 2  # that a turn of either has room for

Side = Literal["incumbent", "candidate"]


class Competitor(Protocol):
    """What trains by turns, and stands still in between."""

    def turn(self, seconds: float) -> Block | Failure:
        """Train for so long."""


@dataclass(frozen=True)
class Defeat(Failure):
    """A duel without an end.

    Attributes:
        side: who failed.
    """

    side: Side = "candidate"


@dataclass(frozen=True)
class Duel:
    """What the turns of two trainings tell.

    Attributes:
        ratio: the candidate's speed over the incumbent's, with its 97% interval over the pairs of turns.
        ours: images/s of the candidate's turns.
        theirs: images/s of the incumbent's turns.
        verdict: of the ratio.
    """

    ratio: Estimate
    ours: list[float]
    theirs: list[float]
    verdict: Verdict


def duel(
    incumbent: Competitor,
    candidate: Competitor,
    *,
    turns: int = 6,
    seconds: float = 2.0,
    early: bool = True,
    deadline: float | None = None,
) -> Duel | Defeat:
    """Let two trainings take turns, and compare them by pairs of turns that follow each other.

    The order is A B, B A, A B and so on, so that what a machine's steady drift adds to one pair it takes from the next.
    When it is over, :func:`strobe.measure.statistics.is_over` says after each pair.

    Args:
        incumbent: A, which is warm.
        candidate: B, which is warm.
        turns: of each, 2 at least, before it is asked whether more are needed.
        seconds: of a turn; more if one of them needs more for two steps.
        early: whether it may be over before its last pair, or go on after it, as is enough for a verdict; a ratio that
            is to be told takes as many pairs as it was given.
        deadline: of ``time.monotonic()``, after which no more pairs begin, but for the first two.
    """
    sides: dict[Side, Competitor] = {"incumbent": incumbent, "candidate": candidate}
    order: list[Side] = ["incumbent", "candidate"]
    rates: dict[Side, list[float]] = {"incumbent": [], "candidate": []}
    turns = max(turns, FEWEST)
    for pair in range(PATIENT * turns if early else turns):
        if pair >= FEWEST and deadline is not None and time.monotonic() >= deadline:
            break
        for side in mirrored(order, pair):
            turn = sides[side].turn(seconds)
            if isinstance(turn, Failure):
                return Defeat(turn.reason, turn.memory, side)
            rates[side].append(turn.rate)
            seconds = max(seconds, STEPS * turn.seconds / turn.steps)
        if early and is_over(_ratios(rates), turns):
            break
    ratio = paired(_ratios(rates))
    return Duel(ratio, rates["candidate"], rates["incumbent"], ratio.verdict)


def alone(trainee: Competitor, *, turns: int = 6, seconds: float = 2.0) -> list[float] | Failure:
    """Images/s of the turns of one training, for one that has no room beside another; machines drift meanwhile."""
    rates = []
    for _ in range(turns):
        turn = trainee.turn(seconds)
        if isinstance(turn, Failure):
            return turn
        rates.append(turn.rate)
    return rates


def _ratios(rates: dict[Side, list[float]]) -> list[float]:
    """The candidate's rate over the incumbent's, of each pair of turns."""
    return [ours / theirs for ours, theirs in zip(rates["candidate"], rates["incumbent"], strict=True)]
