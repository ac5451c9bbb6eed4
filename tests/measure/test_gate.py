"""The gate: it opens only where non-inferiority is shown, by simulation, and says what would settle the rest."""

import math
import re

import numpy as np
import pytest

from strobe.errors import ConfigError
from strobe.measure.gate import Case, Ruling, parse_share, rule
from strobe.measure.statistics import unpaired
from support.refusals import refusal

TRIALS = 600
LIMIT = 0.05


def ruled(*cases: Case, limit: float = LIMIT, lacking: tuple[str, ...] = ()) -> Ruling:
    return rule(cases, limit, "--fail-if-slower ", "sweep.repeats", lacking)


def codes(truth: float, *, runs: int, noise: float, cells: int = 1, seed: int = 1) -> list[int]:
    """Exit codes of the gate, of cells that are so many times as fast as the baseline."""
    random = np.random.default_rng(seed)

    def rates(speed: float) -> list[float]:
        return list(speed * np.exp(random.normal(0, noise, runs)))

    return [
        ruled(*(Case(str(cell), unpaired(rates(truth), rates(1.0))) for cell in range(cells))).code
        for _ in range(TRIALS)
    ]


@pytest.mark.parametrize(("runs", "noise"), [(2, 0.02), (3, 0.1), (5, 0.02), (5, 0.3), (20, 0.05)])
def test_what_lost_the_limit_passes_no_more_often_than_the_level_allows(runs: int, noise: float) -> None:
    """And so what lost more, which is further from passing."""
    assert codes(1 - LIMIT, runs=runs, noise=noise).count(0) <= 0.025 * TRIALS


@pytest.mark.parametrize(("runs", "noise"), [(2, 0.02), (3, 0.1), (5, 0.02), (20, 0.05)])
def test_what_lost_nothing_is_seldom_a_regression(runs: int, noise: float) -> None:
    assert codes(1 - LIMIT, runs=runs, noise=noise).count(3) <= 0.025 * TRIALS
    assert codes(1.0, runs=runs, noise=noise).count(3) <= 0.01 * TRIALS


def test_one_of_many_cells_that_lost_more_keeps_it_closed() -> None:
    random = np.random.default_rng(2)
    passed = 0
    for _ in range(300):
        sides = [[list(speed * np.exp(random.normal(0, 0.01, 5))) for speed in (truth, 1.0)] for truth in (1, 1, 0.94)]
        passed += ruled(*(Case(str(place), unpaired(*pair)) for place, pair in enumerate(sides))).code == 0
    assert passed <= 0.025 * 300


def test_with_enough_runs_it_opens_and_closes() -> None:
    assert codes(1.0, runs=10, noise=0.02).count(0) >= 0.95 * TRIALS
    assert codes(0.85, runs=10, noise=0.02).count(3) >= 0.95 * TRIALS


EVEN = unpaired([100.0, 101.0, 99.0, 100.5], [100.0, 100.5, 99.5, 101.0])
SLOW = unpaired([80.0, 81.0, 80.0, 80.5], [100.0, 100.5, 99.5, 101.0])
WIDE = unpaired([100.0, 250.0, 40.0, 100.0], [100.0, 100.5, 99.5, 101.0])
NOISY = unpaired([100.0, 130.0, 80.0, 100.0], [100.0, 100.5, 99.5, 101.0])


@pytest.mark.parametrize(
    ("cases", "code", "said"),
    [
        ([Case("a", EVEN)], 0, "passed: a is shown to keep more than 95% of the baseline's speed"),
        ([Case("a", SLOW)], 3, r"regression: a is 0.8\d+ \(0.7\d+ to 0.8\d+\) times as fast$"),
        ([Case("a", EVEN), Case("b", failed=True)], 3, "regression: b failed"),
        ([Case("a", SLOW), Case("b")], 3, "regression: a is .*; 1 more cannot be judged"),
        (
            [Case("a", unpaired([100.0, 300.0], [100.0, 90.0]))],
            4,
            "cannot tell: a: not known, because its runs differ too much",
        ),
        ([Case("a", NOISY), Case("b", EVEN)], 4, r"cannot tell: a is .*; about sweep.repeats=\d+ on both sides"),
        ([Case("a", unpaired([1.0], [1.0]))], 4, r"cannot tell: a .* 2 runs a side to judge; about sweep.repeats=5 on"),
        ([Case("a", WIDE)], 4, "cannot tell: a: not known, because its runs differ too much"),
        ([Case("a", EVEN, doubt="1 of 5 runs failed")], 4, "cannot tell: a: 1 of 5 runs failed$"),
        ([Case("a", SLOW, doubt="1 of 5 runs failed")], 3, "regression: a is"),
        ([Case("a", EVEN), Case("b", doubt="not measured in OLD")], 4, "cannot tell: b: not measured in OLD$"),
        ([], 4, "cannot tell: there is no cell besides the baseline; give one"),
    ],
)
def test_codes_and_words(cases: list[Case], code: int, said: str) -> None:
    found = ruled(*cases)
    assert found.code == code == found.as_record()["code"]
    assert re.match(f"--fail-if-slower 5%: {said}", found.text)
    assert "\n" not in found.text


def test_a_damaged_record_keeps_it_closed() -> None:
    found = ruled(Case("a", EVEN), lacking=["sweep.json cannot be read"])
    assert (found.code, found.passed) == (4, ["a"])
    assert "sweep.json cannot be read" in found.text


def test_what_lies_at_the_limit_is_settled_by_another_limit() -> None:
    pair = [100.0 * math.exp(noise) for noise in (-0.1, 0.1)]
    assert "too close to the limit" in ruled(Case("a", unpaired(pair, pair)), limit=0.0).text


def test_many_cells_are_told_shortly() -> None:
    found = ruled(*(Case(str(number), failed=True) for number in range(40)))
    assert found.text.endswith("4 failed; and 35 more")
    assert len(found.slower) == 40


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), (" 12.5 % ", 0.125), ("0", 0.0)])
def test_shares(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "much", "-1", "100%", "1.2.3", "%", "5", "5%%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    assert f"fail_if_slower={text} is not a share" in refusal(lambda: parse_share(text), ConfigError)
