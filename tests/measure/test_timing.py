"""Rates from blocks, and blocks of so many seconds, by a clock that the test moves."""

import math
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from strobe.measure import timing
from strobe.measure.timing import Block, Meter, Window, by_turns, mirrored, repeated, rounds, shuffled
from strobe.probe.model import Stepping
from support.fitting import fit


class Clock:
    """Time and core-seconds that pass only when they are made to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float, cores: float = 1.0) -> None:
        self.now += seconds
        self.cpu += cores * seconds

    def meter(self, seconds: float, **options: int) -> Meter:
        return Meter(seconds, clock=self, cpu=lambda: self.cpu, **{"warmup": 2, **options})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=clock))
    return clock


def drive(timed: Meter | Window, clock: Clock, durations: list[float], images: int = 10) -> int:
    """Steps that were counted until it was enough; durations repeat."""
    for count in range(10_000):
        clock.work(durations[count % len(durations)])
        if timed.add(images):
            return count + 1
    raise AssertionError("never enough")


def test_the_warm_up_is_not_timed(clock: Clock) -> None:
    meter = clock.meter(0.05)
    for _ in range(2):
        clock.work(100.0)
        assert not meter.add(10)
    drive(meter, clock, [0.5])
    rate = meter.rate()
    assert (rate.median, rate.low, rate.high, rate.cpu_seconds) == pytest.approx((20.0, 20.0, 20.0, 0.05))


def test_blocks_hold_whole_rounds(clock: Clock) -> None:
    meter = clock.meter(0.05, multiple=2)
    drive(meter, clock, [0.0, 1.0])  # two workers, whose batches arrive together
    rate = meter.rate()
    assert (rate.low, rate.median, rate.high) == pytest.approx((20.0, 20.0, 20.0))


def test_short_batches_are_timed_together(clock: Clock) -> None:
    meter = clock.meter(2.0)
    ticks = [0.001] * 49 + [0.051]  # 100 in all; one in fifty takes long
    drive(meter, clock, ticks)
    rate = meter.rate()
    assert rate.low > 10 / 0.004  # a block holds many, so that no rate is that of the long one alone
    assert rate.cpu_seconds is not None
    assert abs(rate.cpu_seconds * 10 - 0.002) < 0.0003


def test_excluded_time_is_not_counted(clock: Clock) -> None:
    meter = clock.meter(0.05)
    for _ in range(4):
        clock.work(0.3)
        meter.exclude(0.3)
        clock.work(0.5)
        enough = meter.add(10)
    assert enough
    assert meter.rate().median == pytest.approx(20.0)


def test_few_blocks_know_little(clock: Clock) -> None:
    meter = clock.meter(1.0, warmup=1)
    assert drive(meter, clock, [1.0, 1.0, 1.1]) == 3  # two blocks are timed, however slow
    rate = meter.rate()
    assert rate.low < 10 / 1.1 / 1.5  # the extremes of two values enclose the median half of the time
    assert rate.high > 10 * 1.5
    assert rate.low < rate.median < rate.high


@pytest.mark.parametrize(("correlation", "noise", "least"), [(0.3, 0.03, 0.95), (0.6, 0.02, 0.905)])
def test_an_interval_holds_the_rate_however_often_a_meter_might_have_stopped(
    clock: Clock, correlation: float, noise: float, least: float
) -> None:
    """2,000 rates, whose blocks resemble their neighbours, each measured until it seems well known."""
    draws, blocks, random = 2000, 64, np.random.default_rng(7)
    away = random.standard_normal((draws, blocks))
    for block in range(1, blocks):
        away[:, block] = correlation * away[:, block - 1] + math.sqrt(1 - correlation**2) * away[:, block]
    held = 0
    for seconds in 0.1 * np.exp(noise * away):
        meter = clock.meter(0.1 * blocks - 0.5, warmup=1)
        drive(meter, clock, [0.1, *seconds.tolist()])
        held += meter.rate().low <= 100 <= meter.rate().high
    assert held / draws >= least


@pytest.mark.parametrize(
    ("seconds", "warmup", "durations", "took"),
    [
        (4.0, 2, [0.1, 0.3, 0.2], (4.0, 5.0)),  # never well known: until the time is up
        (100.0, 2, [0.2], (1.0, 3.0)),  # well known
        (4.0, 1000, [0.2], (2.0, 6.0)),  # the warm-up takes a quarter of the time at most
    ],
)
def test_a_meter_ends(
    clock: Clock, seconds: float, warmup: int, durations: list[float], took: tuple[float, float]
) -> None:
    drive(clock.meter(seconds, warmup=warmup), clock, durations)
    assert took[0] <= clock.now - 100 <= took[1]


@pytest.mark.parametrize(
    ("seconds", "multiple", "epoch", "most", "steps"),
    [
        (10.0, 1, 0, math.inf, 10),  # until the time is up
        (1.0, 1, 0, math.inf, 3),  # three steps in any case
        (10.0, 1, 0, 5, 5),  # no more than that
        (10.0, 1, 32, math.inf, 8),  # two epochs of four steps, for a third does not fit
        (10.0, 1, 160, math.inf, 10),  # no whole epoch fits
        (10.0, 4, 0, math.inf, 12),  # as many batches of each worker
        (10.0, 4, 0, 5, 8),
    ],
)
def test_a_window_ends_with_the_time_or_with_an_epoch(
    clock: Clock, *, seconds: float, multiple: int, epoch: int, most: float, steps: int
) -> None:
    window = Window(seconds, multiple=multiple, epoch=epoch, most=most, clock=clock)
    assert window.seconds == 0
    assert drive(window, clock, [1.0], images=8) == 3 + steps
    assert window.block == Block(8 * steps, steps, steps)
    assert window.block.rate == 8


def test_a_windows_warm_up_does_not_take_for_ever(clock: Clock) -> None:
    window = Window(1.0, warmup=100, clock=clock)
    assert drive(window, clock, [1.5]) == 3 + 3


def test_work_is_repeated_in_whole_turns_until_the_time_is_up(clock: Clock) -> None:
    def work() -> int:
        clock.work(1.0)
        return 4

    assert repeated(work, 5.0, warmup=3, multiple=2, clock=clock) == Block(24, 6.0, 6)
    assert clock.now == 100 + 3 + 6
    assert repeated(work, clock=clock) == Block(4, 1.0, 1)


def test_a_training_ends_with_the_last_step_needed() -> None:
    images: list[int] = []
    trainer = fit(Stepping(lambda count: images.append(count) or len(images) == 3))
    assert images == [4, 4, 4]
    assert trainer.global_step == 3


def test_each_round_holds_every_item_in_an_order_of_its_own() -> None:
    visits = list(rounds("abc", range(60), seed=1))
    assert [number for number, _ in visits] == [number for number in range(60) for _ in "abc"]
    orders = ["".join(item for number, item in visits if number == one) for one in range(60)]
    assert {"".join(sorted(order)) for order in orders} == {"abc"}
    assert len(Counter(orders)) == 6
    assert visits == list(rounds("abc", range(60), seed=1)) != list(rounds("abc", range(60), seed=2))
    assert list(rounds("abc", range(7, 60), seed=1)) == visits[21:]  # as when a broken-off campaign goes on
    assert shuffled("abc", 7, 1) == list(orders[7])


def test_a_steady_drift_cancels_in_two_rounds() -> None:
    assert [mirrored("AB", number) for number in range(3)] == [["A", "B"], ["B", "A"], ["A", "B"]]


@pytest.mark.parametrize(("step", "pairs"), [(0.01, 6), (0.5, 4)])
def test_sides_that_take_turns_are_compared_whatever_the_machine_loses_meanwhile(step: float, pairs: int) -> None:
    taken: list[tuple[str, float]] = []

    def side(name: str, rate: float) -> Callable[[float], Block]:
        def turn(seconds: float) -> Block:
            taken.append((name, seconds))
            slower = 0.9 ** len(taken)  # in each turn than in the one before
            return Block(images=round(1e9 * rate * slower), seconds=1.0, steps=1)

        return turn

    ratios = by_turns([side("A", 2.0), side("B", 3.0)], 2.4, step=step)
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) == pytest.approx(1.5)
    assert "".join(name for name, _ in taken) == "ABBAABBAABBA"[: 2 * pairs]
    assert sum(seconds for _, seconds in taken) == pytest.approx(2.4)


def test_a_window_without_a_warm_up_counts_from_the_start(clock: Clock) -> None:
    window = Window(1.0, warmup=0, least=1, clock=clock)
    assert drive(window, clock, [0.4]) == 3
    assert window.block == Block(images=30, seconds=pytest.approx(1.2), steps=3)
