"""What follows from figures: growth, the distance of profiles, what calls pay, conclusions and answers."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strobe.bench.harness.declare import Suite
from strobe.bench.harness.trial import Report
from strobe.bench.suites.convolution.page import sections
from strobe.bench.suites.convolution.profiles import Profile
from strobe.bench.suites.convolution.reading import conclusions, corrected, fit_growth, questions, total_variation
from strobe.bench.suites.convolution.suite import (
    CALLS,
    EVENTS,
    PARTS,
    PLAIN,
    PROFILERS,
    REFERENCE,
    SAMPLES,
    TIME,
    TO_CALLEE,
    TO_CALLER,
)
from strobe.present.format import figure
from support.suite_parts import declared
from support.suite_records import record_of

SIDES = [16, 32, 64, 128, 256, 512]


def power(exponent: float, noise: float = 0.0, seed: int = 0) -> dict[int, float]:
    away = np.random.default_rng(seed).normal(0, noise, len(SIDES))
    return {side: 2e-8 * side**exponent * math.exp(error) for side, error in zip(SIDES, away, strict=True)}


@pytest.mark.parametrize("exponent", [0.0, 2.17])
def test_a_power_is_found(exponent: float) -> None:
    growth = fit_growth(power(exponent))
    assert growth
    assert growth.interval is not None
    assert growth.exponent == pytest.approx(exponent, abs=1e-9)
    assert growth.local == pytest.approx(exponent, abs=1e-9)
    assert growth.farthest == pytest.approx(1)
    assert growth.interval == pytest.approx((exponent, exponent), abs=1e-6)


def test_the_interval_holds_the_exponent_as_often_as_it_says() -> None:
    fits = [fit_growth(power(2, noise=0.1, seed=seed)) for seed in range(400)]
    held = sum(fit.interval[0] <= 2 <= fit.interval[1] for fit in fits if fit and fit.interval)
    assert 367 <= held <= 393  # 380 are expected, with a standard deviation of 4.4


def test_two_sizes_have_no_interval_and_one_has_no_power() -> None:
    growth = fit_growth({side: 5e-5 + seconds for side, seconds in power(2).items()})
    assert growth
    assert growth.exponent < 1.5 < growth.local < 2  # what every call costs shows where images are small
    assert growth.farthest > 1.1
    growth = fit_growth({200: 4.0, 100: 1.0})
    assert growth
    assert growth.interval is None
    assert growth.exponent == growth.local == pytest.approx(2)
    assert fit_growth({200: 4.0}) is None


def test_the_distance_is_the_share_that_would_have_to_move() -> None:
    first, second = {"a": 6.0, "b": 2.0, "c": 2.0}, {"a": 5.0, "b": 2.0, "d": 3.0}
    assert total_variation(first, second) == total_variation(second, first) == pytest.approx(0.3)
    assert total_variation({"a": 3.0, "b": 1.0}, {"b": 10.0, "a": 30.0}) == 0
    assert total_variation({"a": 3.0, "b": 1.0}, {"c": 5.0}) == 1


TRUTH = {("main",): 2.0, ("main", "often"): 1.0, ("main", "often", "<C>"): 0.5}


@pytest.mark.parametrize("callee", [0.0, 0.25, 1.0])
def test_the_price_of_calls_is_taken_back(callee: float) -> None:
    """Whoever bears it: ``main`` calls ``often`` 1,000 times, and that a function in C 3,000 times."""
    price, calls = 0.002, dict(zip(TRUTH, (1, 1000, 3000), strict=True))
    added = (callee + 1000 * (1 - callee), 1000 * callee + 3000 * (1 - callee), 3000 * callee)
    own = {stack: true + price * more for (stack, true), more in zip(TRUTH.items(), added, strict=True)}
    profile = Profile(sum(own.values()), own, calls)
    assert corrected(profile, price, callee) == pytest.approx(TRUTH)
    assert corrected(profile, -price, callee) == own  # noise, not a price
    assert min(corrected(profile, 100 * price, callee).values()) == 0  # nothing beyond nothing


def reports(seconds: Sequence[float], images: int = 1, figures: Mapping[str, float] | None = None) -> list[Report]:
    return [Report([each], [float(images)], None, dict(figures or {})) for each in seconds]


def own(tree: float, indices: float, rest: float, **more: float) -> dict[str, float]:
    return dict(zip(PARTS, (tree, indices, rest), strict=True)) | more


def made_up(
    suite: Suite, powers: Mapping[str, float], failed: Mapping[str, str] | None = None, trials: int = 7
) -> dict[str, Any]:
    """Times that grow with these powers of the side, ways that failed, and profiles of 1, 2 and 1.5 seconds."""
    found: dict[str, list[Report] | str] = {}
    for cell in suite.cells:
        if cell.table == TIME and cell.column in powers:
            found[cell.name] = reports([1e-6 * float(cell.row) ** powers[cell.column]] * trials)
        elif cell.table == TIME and cell.column in (failed or {}):
            found[cell.name] = (failed or {})[cell.column]
    profiled = {cell.column: cell.name for cell in suite.cells if cell.table == PROFILERS}
    prices = {TO_CALLEE: 1e-7, TO_CALLER: 3e-7}
    found[profiled[PLAIN]] = reports([1.0] * 7, 20, own(0.7, 0.2, 0.1))
    found[profiled[EVENTS]] = reports([2.0] * 7, 20, own(0.8, 1.1, 0.1) | prices | {CALLS: 1e6})
    found[profiled[SAMPLES]] = reports([1.5] * 7, 20, own(0.75, 0.6, 0.15))
    found[profiled["timer"]] = "no timer here"
    return record_of(suite, found)


def bare(sentence: str) -> str:
    """Without intervals."""
    return re.sub(r" \([^)]* to [^)]*\)", "", sentence)


def test_figures_become_sentences() -> None:
    suite = declared("convolution", "quick=true")
    record = made_up(suite, {"four loops": 2, REFERENCE: 1, "native": 0.5, "torch conv2d": 0.75})
    said = [bare(sentence) for sentence in conclusions(record)]
    assert said[0] == (
        f"At 64x64, where 4 of 10 ways were measured, native is fastest: {figure(0.008)} ms; {figure(8**0.5)} times as "
        f"fast as torch conv2d, {figure(512)} times as fast as four loops, {figure(8)} times as fast as scipy "
        "convolve2d."
    )
    assert f"at 64x64 native is {figure(8**0.5)} times as fast as torch conv2d" in said[1]
    assert said[2].endswith(f"as long: cProfile {figure(2)}, pyinstrument {figure(1.5)}.")
    assert said[3] == "cProfile and pyinstrument disagree about 15.0% of im2col's time."
    assert said[4].endswith("they are off: cProfile by 35.0%, pyinstrument by 20.0%.")
    assert len(said) == 5
    slower = conclusions(made_up(suite, {REFERENCE: 1, "native": 1.5, "torch conv2d": 1.25}))
    assert slower[0].startswith("At 64x64, where 3 of 10 ways were measured, scipy convolve2d is fastest:")
    assert f"torch conv2d is {figure(8**0.5)} times as fast as native" in bare(slower[1])
    same = conclusions(made_up(suite, {"native": 1, "torch conv2d": 1}))
    assert "torch conv2d has the shortest time: " in same[0]
    assert "native, which is no difference that the interval would show" in bare(same[0])
    assert "which is no difference that the interval would show" in same[1]


def test_few_trials_have_no_verdict() -> None:
    suite = declared("convolution", "quick=true")
    record = made_up(suite, {REFERENCE: 1, "native": 0.5, "torch conv2d": 0.75}, trials=1)
    first, second, *_ = conclusions(record)
    assert "native has the shortest time: " in first
    assert "torch conv2d, by too few trials to tell" in first
    assert second.endswith("by too few trials to tell.")
    assert "too few" not in conclusions(made_up(suite, {"native": 0.5, "torch conv2d": 0.75}, trials=2))[0]


def test_a_way_that_failed_everywhere_is_named() -> None:
    suite = declared("convolution", "quick=true")
    powers = {"four loops": 2, REFERENCE: 1, "window sums": 1.5}
    record = made_up(suite, powers, {"native": "no compiler", "im2col": "too large"})
    said = conclusions(record)
    assert said[0].startswith("At 64x64, where 3 of 10 ways were measured, ")
    assert not [each for each in said if "native" in each]
    second, third = list(questions(record).values())[1:3]
    assert third.endswith("im2col failed: too large.")
    assert "failed" not in second


def test_powers_are_compared_over_the_same_sides() -> None:
    suite = declared("convolution", "suite.sizes=[8,16,256,512]")
    record = made_up(suite, {"four loops": 2, REFERENCE: 1})
    for cell in record["cells"]:
        if (cell["column"], cell["row"]) == (REFERENCE, "512"):
            cell["seconds"]["median"] *= 100  # where four loops are not measured
    (asked, *_), growth = questions(record).values(), sections(record, Path())[1].text
    assert "Over sides of 8 to 256 pixels" in asked
    assert "to the power of 2.00 (four loops) and 1.00 (scipy convolve2d)" in asked
    assert "for n = 8 to 256; " in growth
    assert "for n = 8 to 512; " in growth


def test_the_documents_questions_are_answered_from_the_figures() -> None:
    suite = declared("convolution", "quick=true")
    powers = {"four loops": 2, "window sums": 1.5, "im2col": 2.5, "im2col recursive": 1, REFERENCE: 0.5}
    answers = [bare(each) for each in questions(made_up(suite, powers)).values()]
    assert len(answers) == 5
    assert f"At 64x64 scipy convolve2d is {figure(512)} times as fast as four loops." in answers[0]
    assert "to the power of 2.00 (four loops) and 0.50 (scipy convolve2d)" in answers[0]
    assert f"At 8x8 window sums is {figure(8**0.5)} times as fast as four loops." in answers[1]
    assert f"At 64x64 four loops is {figure(8)} times as fast as im2col." in answers[2]
    assert "55% by cProfile, 40% by pyinstrument, 20% by timing it directly" in answers[3]
    assert "50,000 calls are timed for one image" in answers[3]
    assert f"at 64x64 im2col recursive is {figure(512)} times as fast as im2col" in answers[3]
    assert f"At 64x64 scipy convolve2d is {figure(8)} times as fast as im2col recursive." in answers[4]
    nothing = record_of(suite, {cell.name: "it broke" for cell in suite.cells})
    assert all(
        each.startswith("Not known, for too little of it was measured. ") and "failed: it broke." in each
        for each in questions(nothing).values()
    )
    assert conclusions(nothing) == []
    waiting = record_of(suite, {})
    assert set(questions(waiting).values()) == {"Not known, for too little of it was measured."}
