"""How certain a ratio is: a configuration compared with itself, and with others."""

from collections.abc import Callable

import numpy as np
import pytest

from strobe.measure.statistics import interval, paired, unpaired, verdict

TRIALS = 400
Noise = Callable[[np.random.Generator, int], np.ndarray]
NOISES: dict[str, Noise] = {
    "normal": lambda random, count: random.normal(0, 0.02, count),
    "heavy tails": lambda random, count: 0.02 * random.standard_t(2, count),
    "now and then much slower": lambda random, count: (
        random.normal(0, 0.01, count) - (random.random(count) < 0.15) * random.exponential(0.2, count)
    ),
}


def rates(noise: Noise, random: np.random.Generator, count: int, speed: float = 100.0) -> list[float]:
    return list(speed * np.exp(noise(random, count)))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("sides", [(2, 2), (3, 3), (5, 5), (2, 5), (2, 20)])
def test_a_configuration_is_no_different_from_itself(noise: str, sides: tuple[int, int]) -> None:
    random = np.random.default_rng(7)
    verdicts = [verdict(unpaired(*(rates(NOISES[noise], random, count) for count in sides))) for _ in range(TRIALS)]
    assert verdicts.count("no difference") >= 0.95 * TRIALS


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_ratios_within_rounds_are_no_different_from_one(count: int) -> None:
    random = np.random.default_rng(8)
    verdicts = [verdict(paired(rates(NOISES["normal"], random, count, speed=1.0))) for _ in range(TRIALS)]
    assert verdicts.count("no difference") >= 0.95 * TRIALS


@pytest.mark.parametrize(("speed", "found"), [(125.0, "faster"), (80.0, "slower")])
def test_a_quarter_is_found_with_three_runs(speed: float, found: str) -> None:
    random = np.random.default_rng(9)
    normal = NOISES["normal"]
    verdicts = [verdict(unpaired(rates(normal, random, 3, speed), rates(normal, random, 3))) for _ in range(100)]
    assert verdicts.count(found) >= 95


def test_more_runs_make_the_interval_narrower() -> None:
    random = np.random.default_rng(10)
    widths = []
    for count in (2, 3, 5, 10, 40):
        ratios = [unpaired(*(rates(NOISES["normal"], random, count) for _ in range(2))) for _ in range(50)]
        widths.append(np.median([np.log(ratio["high"] / ratio["low"]) for ratio in ratios]))
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.03


def test_a_ratio_is_of_geometric_means_and_its_own_inverse() -> None:
    ours, theirs = [110.0, 120.0, 100.0], [50.0, 55.0, 60.0]
    there, back = unpaired(ours, theirs), unpaired(theirs, ours)
    assert there["median"] == pytest.approx(np.prod(ours) ** (1 / 3) / np.prod(theirs) ** (1 / 3))
    assert there["median"] * back["median"] == pytest.approx(1)
    assert there["low"] * back["high"] == pytest.approx(1, rel=0.02)  # the two draw differently
    assert unpaired([1e3 * rate for rate in ours], theirs)["low"] == pytest.approx(1e3 * there["low"])
    assert unpaired(ours, theirs) == there


@pytest.mark.parametrize("sides", [([1.0], [2.0, 3.0]), ([2.0, 3.0], [1.0]), ([1.0], [1.0])])
def test_of_one_run_there_is_a_ratio_and_no_verdict(sides: tuple[list[float], list[float]]) -> None:
    ratio = unpaired(*sides)
    assert ratio["median"] > 0
    assert (ratio["low"], ratio["high"]) == (None, None)
    assert verdict(ratio) == "too few runs"
    assert interval([4.0]) == {"median": pytest.approx(4.0), "low": None, "high": None}


def test_equal_values_are_certain() -> None:
    assert unpaired([2.0, 2.0], [1.0, 1.0]) == pytest.approx({"median": 2.0, "low": 2.0, "high": 2.0})
    assert verdict(unpaired([2.0, 2.0], [1.0, 1.0])) == "faster"


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [float("inf")]])
def test_what_is_no_rate_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="positive numbers, at least one"):
        interval(values)
