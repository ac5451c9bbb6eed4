"""Student's t and the beta distribution, against scipy."""

import math

import pytest
from scipy import stats

from strobe.measure.distributions import beta_quantile, students_quantile, students_tails


@pytest.mark.parametrize("freedom", [0.3, 1, 1.7, 2, 5, 29, 400, 20_000])
def test_students_t_is_scipys(freedom: float) -> None:
    for share in (1e-9, 0.004, 0.025, 0.2, 0.26, 0.4999, 0.5, 0.6, 0.74, 0.8, 0.975, 0.9999):
        assert students_quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-8, abs=1e-12)
    for t in (0.001, 0.3, 1, 2.5, 40):
        assert students_tails(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-8, abs=1e-290)
    assert (students_quantile(1, freedom), students_quantile(0.9, 0)) == (math.inf, math.inf)


@pytest.mark.parametrize("total", [1, 3, 20, 1000])
def test_quantiles_of_the_beta_distribution_are_scipys(total: int) -> None:
    for count in {1, (total + 1) // 2, total}:
        for share in (1e-4, 0.025, 0.5, 0.975):
            known = stats.beta.ppf(share, count, total - count + 1)
            assert beta_quantile(count, total - count + 1, share) == pytest.approx(known, rel=1e-9)
