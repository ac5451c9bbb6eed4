"""Two trainings that take turns: which one is faster, and how certain that is."""

import math
import time
from dataclasses import dataclass
from typing import Literal, Protocol

from strobe.measure.rounds import mirrored
from strobe.measure.statistics import Ratio, Verdict, paired, verdict
from strobe.measure.timing import Block
from strobe.process.fork import Failure

EARLY = 4  # pairs of turns, from which on a duel may be over before its last one
FEWEST = 2  # pairs, however late it is
AFAR = 2.0  # times as wide as it is, the interval must leave out 1 for that
STEPS = 2  # that a turn of either has room for
PATIENT = 3  # times as many pairs, for a candidate that looks faster and is not for certain
PROMISING = 1.03  # times as fast, as it looks: less is not worth more time

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

    ratio: Ratio
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
    It is over before the last pair, after an even number of them and ``EARLY`` at least, if the interval would leave
    out 1 also were it ``AFAR`` times as wide: who looks more often must ask for more, for no more than 5 of 100
    comparisons of equals may find a difference. A candidate that looks faster (``PROMISING``) after the last pair, and
    is not for certain, gets as many pairs once more, and again.

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
        if pair and pair % turns == 0 and not _is_open(_ratio(rates)):
            break
        for side in mirrored(order, pair):
            turn = sides[side].turn(seconds)
            if isinstance(turn, Failure):
                return Defeat(turn.reason, turn.memory, side)
            rates[side].append(turn.rate)
            seconds = max(seconds, STEPS * turn.seconds / turn.steps)
        if early and pair + 1 >= EARLY and pair % 2 == 1 and _is_clear(_ratio(rates)):
            break
    ratio = _ratio(rates)
    return Duel(ratio, rates["candidate"], rates["incumbent"], verdict(ratio))


def alone(trainee: Competitor, *, turns: int = 6, seconds: float = 2.0) -> list[float] | Failure:
    """Images/s of the turns of one training, for one that has no room beside another; machines drift meanwhile."""
    rates = []
    for _ in range(turns):
        turn = trainee.turn(seconds)
        if isinstance(turn, Failure):
            return turn
        rates.append(turn.rate)
    return rates


def _ratio(rates: dict[Side, list[float]]) -> Ratio:
    return paired([ours / theirs for ours, theirs in zip(rates["candidate"], rates["incumbent"], strict=True)])


def _is_open(ratio: Ratio) -> bool:
    """Whether more pairs may yet show that the candidate is faster."""
    return ratio["median"] >= PROMISING and verdict(ratio) == "no difference"


def _is_clear(ratio: Ratio) -> bool:
    """Whether an interval would leave out 1 also if it were ``AFAR`` times as wide, on a scale of logarithms."""
    low, high = ratio["low"], ratio["high"]
    if low is None or high is None:
        return False
    median = ratio["median"]
    wider = [median * math.pow(end / median, AFAR) for end in (low, high)]
    return wider[0] > 1 or wider[1] < 1
