"""Ranks that measure together; here each is a thread, and their store a dictionary."""

import threading
import time
from itertools import count
from typing import Any

import pytest

from strobe.measure.timing import Meter, Rate
from strobe.probe import ranks as module
from strobe.probe.ranks import LostRankError, Ranks
from support.ranks import together


def begun(ranks: Ranks) -> Ranks:
    ranks.begin(["model"] if ranks.rank == 0 else None)
    return ranks


def test_the_first_one_says_what_is_measured_and_the_slowest_sets_the_pace() -> None:
    rates = [Rate(100.0, 95.0, 110.0, 0.01), Rate(50.0, 40.0, 60.0, 0.03), Rate(90.0, 89.0, 91.0, 0.02)]
    assert (
        together(*[lambda ranks: ranks.begin(["loader", "data.batch_size=8"])] * 3)
        == [["loader", "data.batch_size=8"]] * 3
    )
    found = together(*[lambda ranks: begun(ranks).slowest(rates[ranks.rank])] * 3)
    assert found == [Rate(150.0, 120.0, 180.0, pytest.approx(0.02))] * 3
    assert together(*[lambda ranks: begun(ranks).slowest(None)] * 2) == [None, None]


def test_ranks_that_wait_for_each_other_count_the_same_steps() -> None:
    def train(ranks: Ranks) -> tuple[int, float]:
        meter = Meter(0.1, warmup=2, agree=begun(ranks).in_step())
        steps = 1
        while not meter.add(4):
            time.sleep(0.001 * (1 + 3 * ranks.rank))  # the second one's own clock would begin other blocks
            steps += 1
        return steps, meter.rate().median

    (first, rate), (second, slower) = together(train, train)
    assert first == second > 4
    assert min(rate, slower) > 0


def test_loaders_end_when_the_first_one_does() -> None:
    def load(ranks: Ranks) -> float:
        meter = Meter(0.1 if ranks.rank == 0 else 1000.0, warmup=2, agree=begun(ranks).at_once())
        while not meter.add(4):
            time.sleep(0.001)
        return meter.rate().median

    assert all(rate > 0 for rate in together(load, load))


def test_the_failure_of_one_ends_what_all_measure_and_nothing_more() -> None:
    def measure(ranks: Ranks) -> list[Any]:
        found: list[Any] = []
        for _ in range(2):
            begun(ranks)
            try:
                if ranks.rank == 1 and not found:
                    raise RuntimeError("out of memory")
                found.append(ranks.slowest(Rate(10.0, 9.0, 11.0, None)))
            except (RuntimeError, LostRankError) as error:
                found.append(ranks.fail(str(error)))
        return found

    for found in together(measure, measure, measure):
        assert found == ["rank 1: out of memory", Rate(30.0, 27.0, 33.0, None)]


def test_a_rank_that_hangs_or_ends_is_told_within_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)

    def waiting(ranks: Ranks) -> list[str]:
        told = []
        for _ in range(2):
            with pytest.raises(LostRankError) as lost:
                begun(ranks).all("rate")
            told.append(str(lost.value))
        return told

    told = threading.Event()
    found = together(lambda ranks: (waiting(ranks), told.set())[0], lambda ranks: told.wait(60))
    assert found == [["rank 1 did not answer within 0.2 s"] * 2, True]
    monkeypatch.setattr(module, "PATIENCE", 60.0)  # only a limit: a rank that ends is reported at once
    assert together(waiting, lambda ranks: None) == [["rank 1 has ended"] * 2, None]
    assert together(lambda ranks: None, begun) == [None, "rank 0 has ended"]


@pytest.mark.parametrize("ahead", [1, 3])
def test_ranks_end_their_training_at_the_same_step(ahead: int) -> None:
    """They wait for each other in each update, of which the first one asks in its fifth step to end it."""
    updated = threading.Barrier(2)

    def train(ranks: Ranks) -> int:
        begun(ranks)
        for step in count(1):
            if step % ahead == 0:
                updated.wait(60)
            time.sleep(0.002 * ranks.rank)
            if ranks.is_last(step, enough=step >= 5, ahead=ahead):
                return step
        raise AssertionError

    assert together(train, train) == [5 + ahead] * 2


def test_a_rank_that_waits_for_nobody_is_told_so() -> None:
    later = threading.Event()

    def first(ranks: Ranks) -> bool:
        begun(ranks)
        last = ranks.is_last(1, enough=True, ahead=1)
        later.set()
        return last

    def ahead(ranks: Ranks) -> bool:
        begun(ranks)
        assert later.wait(60)
        return ranks.is_last(9, enough=False, ahead=1)

    found = together(first, ahead)
    assert found == [False, "rank 1 was ahead of the others: it does not wait for them in each update"]
