"""Intervals and verdicts by simulation against known truths: how often they hold them, and how often they err."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from strobe.measure import statistics
from strobe.measure.statistics import (
    FALSE_ALARM,
    Blocks,
    Estimate,
    interval,
    is_over,
    looks,
    median,
    needed,
    paired,
    sequential,
    series,
    together,
    unpaired,
)

TRIALS = 600
DRAWS = 2000
Noise = Callable[[np.random.Generator, int], np.ndarray]
NOISES: dict[str, Noise] = {
    "normal": lambda random, count: random.normal(0, 0.02, count),
    "heavy tails": lambda random, count: 0.02 * random.standard_t(2, count),
    "now and then much slower": lambda random, count: (
        random.normal(0, 0.01, count) - (random.random(count) < 0.15) * random.exponential(0.2, count)
    ),
}


def rates(noise: str, random: np.random.Generator, count: int, speed: float = 100.0) -> list[float]:
    return list(speed * np.exp(NOISES[noise](random, count)))


def holds(found: Estimate, truth: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low <= truth <= found.high


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("sides", [(2, 2), (3, 3), (5, 5), (2, 5), (2, 20), (5, 20)])
def test_a_configuration_is_no_different_from_itself(noise: str, sides: tuple[int, int]) -> None:
    random = np.random.default_rng(7)
    found = [unpaired(*(rates(noise, random, count) for count in sides)).verdict for _ in range(TRIALS)]
    assert found.count("no difference") >= 0.95 * TRIALS
    assert abs(found.count("faster") - found.count("slower")) < 0.03 * TRIALS or noise.startswith("now")


@pytest.mark.parametrize(("of", "level"), [(interval, 0.95), (paired, 0.97)])
@pytest.mark.parametrize("count", [2, 3, 5, 20])
def test_an_interval_of_independent_values_holds_as_often_as_its_level_says(
    count: int, of: Callable[[list[float]], Estimate], level: float
) -> None:
    random = np.random.default_rng(9)
    found = [of(rates("normal", random, count, 1.0)) for _ in range(TRIALS)]
    assert sum(holds(one, 1.0) for one in found) == pytest.approx(level * TRIALS, abs=0.025 * TRIALS)
    assert {(one.level, one.n) for one in found} == {(level, count)}


@pytest.mark.parametrize(("speed", "verdict"), [(125.0, "faster"), (80.0, "slower")])
def test_a_quarter_is_found_with_three_runs(speed: float, verdict: str) -> None:
    random = np.random.default_rng(9)
    found = [unpaired(rates("normal", random, 3, speed), rates("normal", random, 3)).verdict for _ in range(100)]
    assert found.count(verdict) >= 95


def test_sides_of_one_size_are_judged_as_scipy_does() -> None:
    random = np.random.default_rng(3)
    ours, theirs = (random.uniform(50, 150, 8) for _ in range(2))
    found = unpaired(list(ours), list(theirs))
    known = stats.ttest_ind(np.log(ours), np.log(theirs), equal_var=False)
    ends = known.confidence_interval(found.level)
    assert (found.low, found.high) == pytest.approx((math.exp(ends.low), math.exp(ends.high)))
    back = unpaired(list(theirs), list(ours))
    assert (back.low, back.middle) == pytest.approx((1 / found.high, 1 / found.middle))


def autoregressive(random: np.random.Generator, count: int, correlation: float) -> np.ndarray:
    """Positive values around 100, each of which resembles the one before."""
    values, now = np.empty(count), random.normal() / math.sqrt(1 - correlation**2)
    for place in range(count):
        values[place] = now
        now = correlation * now + random.normal()
    return np.asarray(100 * np.exp(0.02 * values))


@pytest.mark.parametrize(
    ("count", "correlation", "share"),
    [(20, 0.0, 0.95), (20, 0.3, 0.93), (50, 0.6, 0.93), (200, 0.0, 0.93), (200, 0.6, 0.93), (500, 0.9, 0.93)],
)
def test_an_interval_of_a_run_holds_the_truth_though_its_values_resemble_their_neighbours(
    count: int, correlation: float, share: float
) -> None:
    random = np.random.default_rng(11)
    found = [list(autoregressive(random, count, correlation)) for _ in range(400)]
    assert sum(holds(series(values), 100.0) for values in found) >= share * len(found)
    if correlation >= 0.6:  # as if they were independent, it would not
        assert sum(holds(median(values), 100.0) for values in found) < 0.9 * len(found)


def test_bursts_of_workers_count_as_one_value() -> None:
    random = np.random.default_rng(12)
    bursts = [np.repeat(random.normal(100, 2, 100), 8) + random.normal(0, 0.5, 800) for _ in range(200)]
    assert sum(holds(series(list(values)), 100.0) for values in bursts) >= 0.93 * len(bursts)
    assert 60 < np.median([statistics.independent(list(values)) for values in bursts]) < 160
    assert statistics.independent(list(random.normal(100, 2, 1000))) > 800


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_few_blocks_of_a_run_know_little(count: int) -> None:
    random = np.random.default_rng(13)
    found = [rates("normal", random, count) for _ in range(TRIALS)]
    assert sum(holds(series(values), 100.0) for values in found) >= 0.93 * TRIALS
    assert sum(holds(median(values), 100.0) for values in found) == pytest.approx(
        TRIALS * (1 - 2 * 0.5**count), abs=0.05 * TRIALS
    )


@pytest.mark.parametrize("count", [6, 7, 20, 101])
def test_order_statistics_assume_no_distribution(count: int) -> None:
    random = np.random.default_rng(14)
    found = [median(list(random.exponential(1.0, count))) for _ in range(TRIALS)]
    assert sum(holds(one, math.log(2)) for one in found) >= 0.93 * TRIALS


def test_equal_values_are_certain_and_count_each() -> None:
    assert unpaired([2.0, 2.0], [1.0, 1.0]) == Estimate(2.0, 2.0, 2.0, 0.97, 2)
    assert unpaired([2.0, 2.0], [1.0, 1.0]).verdict == "faster"
    assert series([0.1] * 30).as_record() == {"median": 0.1, "low": 0.1, "high": 0.1}
    assert statistics.independent([0.1] * 30) == 30


@pytest.mark.parametrize("sides", [([1.0], [2.0, 3.0]), ([2.0, 3.0], [1.0]), ([1.0], [1.0])])
def test_of_one_run_there_is_a_ratio_and_no_verdict(sides: tuple[list[float], list[float]]) -> None:
    ratio = unpaired(*sides)
    assert ratio.middle > 0
    assert (ratio.low, ratio.high, ratio.n, ratio.verdict, ratio.within) == (None, None, 1, "too few runs", None)
    assert needed(ratio, 0.95) is None
    assert interval([4.0]).as_record() == {"median": pytest.approx(4.0), "low": None, "high": None}


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [float("inf")]])
def test_what_is_no_rate_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="positive numbers, at least one"):
        interval(values)


def test_as_many_runs_as_are_said_to_be_needed_settle_it_four_times_in_five() -> None:
    """Known of the spread only what five runs tell."""
    random = np.random.default_rng(15)
    told = [needed(unpaired(rates("normal", random, 5), rates("normal", random, 5)), 0.97) for _ in range(200)]
    count = int(np.median([one for one in told if one is not None]))
    found = [unpaired(rates("normal", random, count), rates("normal", random, count)) for _ in range(400)]
    assert 0.65 < sum((one.low or 0) > 0.97 for one in found) / len(found) < 0.99
    assert needed(unpaired([1.0, 1.1], [1.0, 1.1]), 1.0) is None


def trial(random: np.random.Generator, ratio: float, noise: float, correlated: float) -> Estimate:
    """A paired trial whose pairs of turns have normal noise, of which neighbours resemble each other."""
    planned = looks(3)
    away = random.standard_normal(2 * planned[-1])
    for pair in range(1, len(away)):
        away[pair] = correlated * away[pair - 1] + math.sqrt(1 - correlated**2) * away[pair]
    quads = ratio * np.exp(noise * away.reshape(-1, 2).mean(axis=1))
    return next(
        found for k in planned if is_over(found := sequential(quads[:k].tolist(), planned, FALSE_ALARM), planned)
    )


@pytest.mark.parametrize(("noise", "correlated"), [(0.05, 0.0), (0.1, 0.3), (0.2, 0.6)])
def test_no_more_than_one_of_twenty_trials_of_equals_finds_one_faster(noise: float, correlated: float) -> None:
    random = np.random.default_rng(16)
    found = [trial(random, 1.0, noise, correlated).verdict for _ in range(DRAWS)]
    assert found.count("faster") <= 0.05 * DRAWS
    assert "too few runs" not in found


def test_what_differs_is_found_and_the_sooner_the_clearer_it_is() -> None:
    random = np.random.default_rng(17)
    for ratio, noise, share in ((1.1, 0.05, 0.95), (1.2, 0.1, 0.9), (1.5, 0.2, 0.9)):
        assert [trial(random, ratio, noise, 0.3).verdict for _ in range(200)].count("faster") >= share * 200
    assert {trial(random, 2.0, 0.02, 0.0).n for _ in range(50)} == {3}
    assert {trial(random, 1.0, 0.001, 0.0).n for _ in range(50)} == {3}  # it promises nothing


def test_a_look_that_was_not_planned_asks_for_as_much() -> None:
    quads = [1.14, 1.16, 1.15, 1.15]
    between, planned = sequential(quads, looks(3), 0.04), sequential(quads[:3], looks(3), 0.04)
    assert between.level == planned.level == 0.92
    assert 1 < between.low < between.middle
    assert sequential([1.1], looks(3), 0.04).verdict == "too few runs"


def sweep(random: np.random.Generator, cells: int, blocks: int, spread: float, *, gap: bool = False) -> Blocks:
    """Rates of equal cells, which vary by 3%, more or less by cell, in repeats that differ by 30%."""
    noise = 0.03 * np.exp(spread * random.normal(size=cells))
    logs = noise[:, None] * random.normal(size=(cells, blocks)) + 0.3 * random.normal(size=blocks)
    lost = (cells - 1, blocks - 1) if gap else None
    return Blocks({c: {b: math.exp(logs[c, b]) for b in range(blocks) if (c, b) != lost} for c in range(cells)})


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("cells", "blocks"), [(2, 3), (4, 3), (12, 2), (12, 3), (5, 6)])
def test_in_a_sweep_of_equals_no_cell_is_called_faster_or_slower(cells: int, blocks: int, spread: float) -> None:
    random, wrong, alone = np.random.default_rng(19), 0, 0
    for _ in range(300):
        made = sweep(random, cells, blocks, spread, gap=blocks > 2 and cells > 2)
        ratios = [made.ratio(cell, 0) for cell in range(1, cells)]
        wrong += any(ratio.verdict != "no difference" for ratio in together(ratios))
        alone += any(ratio.verdict != "no difference" for ratio in ratios)
    assert wrong <= 0.06 * 300
    assert cells < 12 or alone > 0.06 * 300  # as if each were the only one


def test_two_cells_are_compared_by_their_pairs_as_scipy_does() -> None:
    random = np.random.default_rng(20)
    sides = random.uniform(50, 150, (2, 5))
    found = Blocks({side: dict(enumerate(values)) for side, values in enumerate(sides)}).ratio(0, 1)
    ends = stats.ttest_rel(*np.log(sides)).confidence_interval(found.level)
    assert (found.low, found.high) == pytest.approx((math.exp(ends.low), math.exp(ends.high)))
    assert found.at(0.97) == found
    assert found.at(0.9).high < found.high


def test_what_slows_a_repeat_hides_no_difference() -> None:
    random, found = np.random.default_rng(21), []
    for _ in range(100):
        made = sweep(random, 8, 3, 0.3)
        rates = {
            cell: {b: rate * (1.25 if cell == 5 else 1) for b, rate in each.items()}
            for cell, each in made.rates.items()
        }
        found.append(together([Blocks(rates).ratio(cell, 0) for cell in range(1, 8)])[4].verdict)
    assert found.count("faster") >= 90


def test_the_clearer_is_judged_first() -> None:
    clear, near, unclear = (
        Blocks({0: dict(enumerate([100, 101, 99, 100])), 1: dict(enumerate(r))})
        for r in ([200, 203, 198, 201], [103, 105, 102, 104.5], [101, 99, 101, 98])
    )
    ratios = [each.ratio(1, 0) for each in (unclear, near, clear)]
    found = together(ratios)
    assert [one.level for one in found] == pytest.approx([0.97, 0.985, 0.99])
    assert [one.verdict for one in found] == ["no difference", "faster", "faster"]
    unknown = Estimate(2.0, None, None, 0.97, 1)
    assert together([unknown, ratios[0]]) == [unknown, ratios[0].at(0.97)]
