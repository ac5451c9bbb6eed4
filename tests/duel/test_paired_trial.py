"""Duels, by made-up turns on a machine that drifts: what they say of equals, and in which order they take turns."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from strobe.duel.paired_trial import FALSE, Defeat, Duel, alone, duel, is_told
from strobe.measure.statistics import FEWEST
from strobe.measure.timing import Block
from strobe.process.fork import Failure
from support.duels import Turns

TURN = 2.0  # seconds


class Machine:
    """Time passes by turns; how fast it is meanwhile, is a function of time."""

    def __init__(self, speed: Callable[[float], float]) -> None:
        self.speed = speed
        self.now = 0.0
        self.turns: list[tuple[str, float]] = []  # who, and for how many seconds


class Made:
    """Turns on a machine at so many images/s; steps of so many seconds; an end after so many turns."""

    def __init__(self, machine: Machine, name: str, rate: float, *, step: float = 0.1, last: float = math.inf) -> None:
        self.machine, self.name, self.rate, self.step, self.last = machine, name, rate, step, last

    def start(self) -> Block:
        return Block(round(self.rate), 1.0, 1)

    def turn(self, seconds: float) -> Block | Failure:
        machine = self.machine
        if sum(name == self.name for name, _ in machine.turns) >= self.last:
            return Failure("memory ran out", memory=True)
        steps = max(2, math.ceil(seconds / self.step))
        machine.turns.append((self.name, seconds))
        machine.now += steps * self.step
        images = self.rate * machine.speed(machine.now) * steps * self.step
        return Block(round(images), steps * self.step, steps)


def made(speed: Callable[[float], float], ratio: float, **options: Any) -> Duel:
    machine = Machine(speed)
    ended = duel(Made(machine, "A", 1e6), Made(machine, "B", 1e6 * ratio), seconds=TURN, **options)
    assert isinstance(ended, Duel)
    return ended


def noisy(seed: int, drift: float, *, heavy: bool) -> Callable[[float], float]:
    """A machine whose speed falls by ``drift`` in a minute, each turn 2% off; if ``heavy``, 20% now and then."""
    generator = np.random.default_rng(seed)

    def speed(now: float) -> float:
        noise = 0.02 * (generator.standard_t(3) if heavy else generator.normal())
        return math.exp(noise) * (1 - drift * now / 60)

    return speed


@pytest.mark.parametrize(("drift", "heavy"), [(0.0, False), (0.3, True)])
def test_equals_are_seldom_told_apart(drift: float, *, heavy: bool) -> None:
    verdicts = [made(noisy(seed, drift, heavy=heavy), 1.0, seed=seed).ratio.verdict for seed in range(400)]
    assert verdicts.count("no difference") >= 0.95 * len(verdicts)
    assert "too few runs" not in verdicts


@pytest.mark.parametrize(("noise", "correlated"), [(0.05, 0.0), (0.1, 0.3), (0.2, 0.6)])
@pytest.mark.parametrize("most", [6, 12])
def test_no_more_than_one_duel_of_equals_in_twenty_finds_a_difference(
    noise: float, correlated: float, most: int
) -> None:
    """As ``strobe duel`` lets them take turns, without a gate and with the usual number of quads, or twice as many."""
    random, wrong, short = np.random.default_rng(19), 0, 0
    for seed in range(2000):
        sides = [Turns(random, noise, correlated) for _ in "AB"]
        found = duel(*sides, turns=most, enough=is_told, alpha=FALSE, seed=seed)
        assert isinstance(found, Duel)
        wrong += is_told(found.ratio)
        short += found.ratio.n < most
    assert wrong <= 0.05 * 2000
    assert 0 < short <= wrong


@pytest.mark.parametrize(("ratio", "quads"), [(1.5, 3), (1 / 1.5, 3), (1.03, 6)])
def test_what_is_clear_takes_half_of_the_quads(ratio: float, quads: int) -> None:
    found = made(noisy(1, 0.1, heavy=False), ratio, enough=is_told, alpha=FALSE, seed=1).ratio
    assert (found.n, found.level) == (quads, 1 - 2 * FALSE)


class Bursty(Made):
    """Each 20th step loads for all of them, for as long as 30 others take."""

    def __init__(self, machine: Machine, name: str, rate: float) -> None:
        super().__init__(machine, name, rate, step=1 / rate)
        self.done = 0

    def turn(self, seconds: float) -> Block | Failure:
        steps, passed = 0, 0.0
        while passed < seconds or steps < 2:
            self.done, steps = self.done + 1, steps + 1
            passed += self.step * (30 if self.done % 20 == 0 else 1)
        self.machine.turns.append((self.name, seconds))
        return Block(steps, passed, steps)


def test_turns_become_longer_where_samples_come_in_bursts() -> None:
    machine = Machine(lambda _: 1.0)
    found = duel(Bursty(machine, "A", 30), Bursty(machine, "B", 60), seconds=1.0, early=False, seed=3)
    assert isinstance(found, Duel)
    assert found.ratio.middle == pytest.approx(2.0, rel=0.2)
    assert not found.ratio.wide
    assert [seconds for _, seconds in machine.turns] == [1.0] * 6 + [4.0] * (len(machine.turns) - 6)
    even = Machine(lambda _: 1.0)
    duel(Made(even, "A", 30), Made(even, "B", 60), seconds=1.0, early=False, seed=3)
    assert {seconds for _, seconds in even.turns} == {1.0}


@pytest.mark.parametrize(("ratio", "verdict"), [(1.1, "faster"), (0.9, "slower")])
def test_what_differs_is_told_apart_and_soon_if_it_is_clear(ratio: float, verdict: str) -> None:
    duels = [made(noisy(seed, 0.1, heavy=False), ratio, seed=seed) for seed in range(50)]
    verdicts = [each.ratio.verdict for each in duels]
    assert ratio < 1 or verdicts.count(verdict) >= 45  # what looks slower promises nothing, and ends at once
    assert set(verdicts) <= {verdict, "no difference"}
    assert {len(each.ours) for each in duels} <= {6, 12, 24}
    clear = made(noisy(0, 0.1, heavy=False), ratio**10)
    assert (len(clear.ours), len(clear.theirs), clear.ratio.verdict) == (6, 6, verdict)


def test_a_steady_drift_cancels() -> None:
    duels = made(lambda now: math.exp(-now / 60), 1.2)  # by the same share with each turn
    assert duels.ratio.middle == pytest.approx(1.2, rel=1e-3)
    assert 0.8e6 < duels.theirs[0] < 1e6
    assert duels.theirs == sorted(duels.theirs, reverse=True)


def test_turns_alternate_and_are_as_long_as_the_slower_one_needs() -> None:
    machine = Machine(lambda _: 1.0)
    duel(Made(machine, "A", 10), Made(machine, "B", 10, step=5.0), turns=24, seconds=TURN, early=False, seed=1)
    order = "".join(name for name, _ in machine.turns)
    quads = [order[start : start + 4] for start in range(2, len(order), 4)]
    assert order[:2] == quads[0][:2]  # they are not counted
    assert set(quads) == {"ABBA", "BAAB"}
    assert {seconds for _, seconds in machine.turns[2:]} == {10.0}


@pytest.mark.parametrize(("left", "pairs"), [(-1.0, 2 * FEWEST), (60.0, 6)])
def test_after_the_deadline_no_more_pairs_begin(left: float, pairs: int) -> None:
    ended = made(noisy(0, 0.0, heavy=False), 1.0, deadline=time.monotonic() + left)
    assert len(ended.ours) == len(ended.theirs) == pairs
    assert ended.ratio.low is not None


@pytest.mark.parametrize(("last", "side"), [((3, math.inf), "incumbent"), ((math.inf, 2), "candidate")])
def test_who_fails_loses(last: tuple[float, float], side: str) -> None:
    machine = Machine(lambda _: 1.0)
    sides = [Made(machine, name, 10, last=turns) for name, turns in zip("AB", last, strict=True)]
    ended = duel(*sides)
    assert ended == Defeat("memory ran out", memory=True, side=side)
    assert isinstance(ended, Failure)


def test_one_that_has_no_room_beside_another_takes_turns_alone() -> None:
    machine = Machine(lambda _: 1.0)
    assert alone(Made(machine, "B", 50), turns=3, seconds=TURN) == pytest.approx([50.0] * 3)
    assert machine.turns == [("B", TURN)] * 3
    assert alone(Made(machine, "B", 50, last=4), turns=3) == Failure("memory ran out", memory=True)
