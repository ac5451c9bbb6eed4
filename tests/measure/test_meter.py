"""Rates from blocks, by a clock that the test moves."""

import pytest
import torch

from strobe.measure.meter import Meter, clock


class Clock:
    """Time and core-seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0

    def work(self, seconds: float, cores: float = 1.0) -> None:
        self.now += seconds
        self.cpu += cores * seconds

    def meter(self, seconds: float, **options: int) -> Meter:
        return Meter(seconds, clock=lambda: self.now, cpu=lambda: self.cpu, **{"warmup": 2, **options})


def drive(meter: Meter, clock: Clock, durations: list[float], images: int = 10) -> int:
    """Batches that were counted until it was enough; durations repeat."""
    for count in range(10_000):
        clock.work(durations[count % len(durations)])
        if meter.add(images):
            return count + 1
    raise AssertionError("never enough")


def test_the_warm_up_is_not_timed() -> None:
    clock = Clock()
    meter = clock.meter(0.05)
    for _ in range(2):
        clock.work(100.0)
        assert not meter.add(10)
    drive(meter, clock, [0.5])
    rate = meter.rate()
    assert (rate.median, rate.low, rate.high, rate.cpu_seconds) == pytest.approx((20.0, 20.0, 20.0, 0.05))


def test_blocks_hold_whole_rounds() -> None:
    clock = Clock()
    meter = clock.meter(0.05, multiple=2)
    drive(meter, clock, [0.0, 1.0])  # two workers, whose batches arrive together
    rate = meter.rate()
    assert (rate.low, rate.median, rate.high) == pytest.approx((20.0, 20.0, 20.0))


def test_short_batches_are_timed_together() -> None:
    clock = Clock()
    meter = clock.meter(2.0)
    ticks = [0.001] * 49 + [0.051]  # 100 in all; one in fifty takes long
    drive(meter, clock, ticks)
    rate = meter.rate()
    assert rate.low > 10 / 0.004  # a block holds many, so that no rate is that of the long one alone
    assert abs(rate.cpu_seconds * 10 - 0.002) < 0.0003


def test_excluded_time_is_not_counted() -> None:
    clock = Clock()
    meter = clock.meter(0.05)
    for _ in range(10_000):
        clock.work(0.3)
        meter.exclude(0.3)
        clock.work(0.5)
        if meter.add(10):
            break
    assert abs(meter.rate().median - 20.0) < 1e-9


def test_at_least_two_blocks_are_timed_however_slow() -> None:
    clock = Clock()
    assert drive(clock.meter(1.0, warmup=1), clock, [60.0]) == 3  # one to warm up


def test_few_blocks_know_little() -> None:
    clock = Clock()
    meter = clock.meter(1.0, warmup=1)
    drive(meter, clock, [1.0, 1.0, 1.1])
    rate = meter.rate()
    assert rate.low < 10 / 1.1 / 1.5  # the extremes of two values enclose the median half of the time
    assert rate.high > 10 * 1.5
    assert rate.low < rate.median < rate.high


def test_it_ends_at_the_limit() -> None:
    clock = Clock()
    drive(clock.meter(4.0), clock, [0.1, 0.3, 0.2])  # never well known
    assert 4.0 <= clock.now <= 5.0


def test_it_ends_early_when_the_rate_is_well_known() -> None:
    clock = Clock()
    drive(clock.meter(100.0), clock, [0.2])
    assert clock.now < 3.0


def test_a_warm_up_takes_a_quarter_of_the_time_at_most() -> None:
    clock = Clock()
    meter = clock.meter(4.0, warmup=1000)
    drive(meter, clock, [0.2])
    assert clock.now < 6.0


def test_the_clock_of_a_cpu_only_tells_the_time() -> None:
    now = clock(torch.device("cpu"))
    assert now() <= now()
