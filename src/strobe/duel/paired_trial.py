"""Two trainings that take turns: which one is faster, and how certain that is."""

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol, Self

from strobe.measure.statistics import FALSE_ALARM, FEWEST, Estimate, Verdict, is_over, looks, sequential
from strobe.measure.timing import Block
from strobe.process.fork import Failure, FreshProcess

STEPS = 2  # that a turn of either has room for
UNCOUNTED = 2  # turns before the first quad

Side = Literal["incumbent", "candidate"]


class Competitor(Protocol):
    """What trains by turns, and stands still in between."""

    def turn(self, seconds: float) -> Block | Failure:
        """Train for so long."""


class TakesTurns:
    """A training in a process of its own, which stands still but for its turns; a context manager.

    Args:
        timeout: seconds that may pass until it is warm, and in a turn beyond those that are asked for.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._process: FreshProcess | None = None

    def turn(self, seconds: float) -> Block | Failure:
        """Train for so long, two timed steps at least; as many steps, or a multiple of it, as there are workers."""
        if self._process is None:
            return Failure("its training has ended")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended; the answer tells how
            self._process.pipe.send(seconds)
        self._process.resume()
        return self._answer(self._process, self.timeout + seconds)

    def close(self) -> None:
        """End it, and all that it has started. A second call does nothing."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, process: FreshProcess, timeout: float) -> Block | Failure:
        """What the turn came to; the process stands still then."""
        raise NotImplementedError


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
        ratio: the candidate's speed over the incumbent's, with its interval over the quads of turns.
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
    seconds: float = 1.0,
    early: bool = True,
    alpha: float = FALSE_ALARM,
    deadline: float | None = None,
    seed: int | None = None,
) -> Duel | Defeat:
    """Let two trainings take turns, and compare them by quads of turns: A B B A, or B A A B as chance has it.

    What a machine's steady drift adds to the first half of a quad it takes from the second. A pair before the first
    quad is not counted: one side may have been warm for long, and the other has trained a few steps. After ``turns`` of
    each side, and after twice and four times as many, :func:`strobe.measure.statistics.sequential` is asked.

    Args:
        incumbent: A, which is warm.
        candidate: B, which is warm.
        turns: of each, 4 at least, before it is asked for the first time.
        seconds: of a turn; more if one of them needs more for two steps.
        early: whether it may be over before the last look; a ratio that is to be told is looked at once, at the end.
        alpha: the share of trials of equals that may find the candidate faster.
        deadline: of ``time.monotonic()``, after which no more quads begin, but for the first two.
        seed: of the order.
    """
    sides: dict[Side, Competitor] = {"incumbent": incumbent, "candidate": candidate}
    rates: dict[Side, list[float]] = {"incumbent": [], "candidate": []}
    random, planned = Random(seed), max(FEWEST, -(-turns // 2))
    asked = looks(planned) if early else looks(planned)[1:2]
    for quad in range(asked[-1]):
        if quad >= FEWEST and deadline is not None and time.monotonic() >= deadline:
            break
        first, second = random.sample(list(sides), 2)
        for number, side in enumerate([*([first, second] if quad == 0 else []), first, second, second, first]):
            turn = sides[side].turn(seconds)
            if isinstance(turn, Failure):
                return Defeat(turn.reason, turn.memory, side)
            if quad or number >= UNCOUNTED:
                rates[side].append(turn.rate)
            seconds = max(seconds, STEPS * turn.seconds / turn.steps)
        if quad + 1 in asked and is_over(
            sequential(quads(rates["candidate"], rates["incumbent"]), asked, alpha), asked
        ):
            break
    ratio = sequential(quads(rates["candidate"], rates["incumbent"]), asked, alpha)
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


def quads(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """The one side's rate over the other's, of each quad of turns, from the rates of both sides' turns."""
    halves = [each[half::2] for each in (ours, theirs) for half in (0, 1)]
    return [math.sqrt(our * ours / (their * theirs)) for our, ours, their, theirs in zip(*halves, strict=True)]
