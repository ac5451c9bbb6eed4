"""The fit of a power to times: what it finds in times that were made up, and what it refuses."""

import math

import numpy as np
import pytest

from strobe.bench.convolution.growth import fit_growth

SIDES = [16, 32, 64, 128, 256, 512]


def power(exponent: float, noise: float = 0.0, seed: int = 0) -> list[float]:
    away = np.random.default_rng(seed).normal(0, noise, len(SIDES)) if noise else np.zeros(len(SIDES))
    return [2e-8 * side**exponent * math.exp(error) for side, error in zip(SIDES, away, strict=True)]


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 2.17, 4.0])
def test_a_power_is_found(exponent: float) -> None:
    growth = fit_growth(SIDES, power(exponent))
    assert growth.exponent == pytest.approx(exponent, abs=1e-9)
    assert growth.local == pytest.approx(exponent, abs=1e-9)
    assert growth.seconds_at_one == pytest.approx(2e-8)
    assert growth.seconds(1000) == pytest.approx(2e-8 * 1000**exponent)
    assert growth.interval == pytest.approx((exponent, exponent), abs=1e-9)


def test_the_interval_holds_the_exponent_as_often_as_it_says() -> None:
    fits = [fit_growth(SIDES, power(2, noise=0.1, seed=seed)) for seed in range(1000)]
    held = sum(fit.interval[0] <= 2 <= fit.interval[1] for fit in fits if fit.interval)
    assert 930 <= held <= 970  # 950 are expected, with a standard deviation of 7
    assert all(fit.interval and fit.interval[0] < fit.exponent < fit.interval[1] for fit in fits)


def test_the_interval_is_numpys() -> None:
    """By numpy.polyfit's covariance and a table of Student's t: 2.776 for four degrees of freedom."""
    seconds = power(1.7, noise=0.3)
    found = fit_growth(SIDES, seconds)
    line, covariance = np.polyfit(np.log(SIDES), np.log(seconds), 1, cov=True)
    width = 2.776445 * math.sqrt(covariance[0, 0])
    assert found.exponent == pytest.approx(line[0])
    assert found.interval == pytest.approx((line[0] - width, line[0] + width), rel=1e-6)


def test_what_every_call_costs_lowers_the_exponent_but_not_where_images_are_large() -> None:
    growth = fit_growth(SIDES, [5e-5 + seconds for seconds in power(2)])
    assert growth.exponent < 1.5 < growth.local < 2


def test_two_sizes_have_no_interval() -> None:
    growth = fit_growth([200, 100], [4.0, 1.0])
    assert growth.interval is None
    assert growth.exponent == pytest.approx(2)
    assert growth.local == pytest.approx(2)


def test_the_order_of_sizes_does_not_matter() -> None:
    seconds = power(2, noise=0.2)
    forth, back = fit_growth(SIDES, seconds), fit_growth(SIDES[::-1], seconds[::-1])
    assert forth == back


@pytest.mark.parametrize(
    ("sides", "seconds", "message"),
    [
        ([10], [1.0], "allow no fit; give at least two"),
        ([10, 10], [1.0, 2.0], "allow no fit; give at least two, each once"),
        ([10, 20], [1.0], "2 sizes and 1 times"),
        ([10, 20], [1.0, 0.0], "0.0 has no logarithm"),
        ([0, 20], [1.0, 1.0], "0 has no logarithm"),
        ([10, 20], [1.0, math.nan], "nan has no logarithm"),
    ],
)
def test_what_cannot_be_fitted_is_refused(sides: list[float], seconds: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_growth(sides, seconds)
