"""Suite ``convolution``: what is measured, that only right results are, what its page shows, and what follows."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strobe.bench.harness.declare import Input, Request, Suite, Trial, slug
from strobe.bench.harness.trial import Report, measure
from strobe.bench.page import render
from strobe.bench.suites.convolution import cells
from strobe.bench.suites.convolution.implementations import IMPLEMENTATIONS, Implementation
from strobe.bench.suites.convolution.page import LESS, sections
from strobe.bench.suites.convolution.profiles import PAGE, load_profile
from strobe.bench.suites.convolution.reading import (
    conclusions,
    corrected,
    fit_growth,
    total_variation,
)
from strobe.bench.suites.convolution.suite import (
    CALLS,
    EVENTS,
    LARGEST,
    LOOKING,
    PARTS,
    PLAIN,
    PROFILERS,
    REFERENCE,
    SAMPLES,
    TIME,
    TO_CALLEE,
    TO_CALLER,
    profiled_cells,
)
from strobe.errors import DataError
from strobe.present.format import figure
from strobe.present.parts import Table
from support.composing import bench_config
from support.photo_files import photograph
from support.suite_parts import declared
from support.suite_records import record_of

NOISE = Input("noise", generated=True)
NOISE_FOUND = Input("noise, generated", generated=True)


def timed(suite: Suite) -> dict[str, list[int]]:
    """The sides at which each implementation is measured."""
    found: dict[str, list[int]] = {}
    for cell in suite.cells:
        if cell.table == TIME:
            found.setdefault(cell.column, []).append(int(cell.row))
    return found


def trial_in(folder: Path, given: Input = NOISE) -> Trial:
    folder.mkdir(parents=True, exist_ok=True)
    return Trial(folder, 0, (), given, folder)


def test_every_implementation_is_measured_at_every_size_that_it_can_bear() -> None:
    assert list(LARGEST) == list(IMPLEMENTATIONS)
    quick, full = timed(declared("convolution", "quick=true")), timed(declared("convolution"))
    assert list(quick) == list(full) == list(IMPLEMENTATIONS)
    assert {tuple(sides) for sides in quick.values()} == {(8, 32, 64)}
    assert full[REFERENCE] == full["native"] == [8, 16, 32, 64, 128, 256, 512, 1024]
    assert {name: sides[-1] for name, sides in full.items() if LARGEST[name]} == {
        name: largest for name, largest in LARGEST.items() if largest
    }
    assert timed(declared("convolution", "suite.kernel=6"))["im2col"][-1] == 64  # four times the products


def test_all_are_held_against_scipy_and_profilers_against_none() -> None:
    found = declared("convolution", "quick=true")
    known = {cell.name: cell for cell in found.cells}
    for cell in found.cells:
        if cell.column in {REFERENCE, PLAIN}:
            assert cell.against is None
        else:
            other = known[cell.against or ""]
            assert (other.table, other.row) == (cell.table, cell.row)
            assert other.column == (REFERENCE if cell.table == TIME else PLAIN)
        assert cell.threads == 1
    assert [cell.column for cell in found.cells if cell.table == PROFILERS] == [PLAIN, *LOOKING]
    assert {cell.row for cell in declared("convolution").cells if cell.table == PROFILERS} == {
        "im2col, 100 repetitions on 7x7"
    }


def test_what_is_chosen_is_measured() -> None:
    found = declared("convolution", "suite.implementations=[native,four loops]", "suite.sizes=[4,4000]")
    assert timed(found) == {"native": [4, 4000], "four loops": [4]}
    assert found.title == "One convolution, written in 2 ways"
    assert all(cell.against is None for cell in found.cells if cell.table == TIME)


def test_a_wrong_result_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shifted = Implementation(lambda image, kernel: IMPLEMENTATIONS[REFERENCE].valid(image[::-1], kernel), "")
    monkeypatch.setitem(IMPLEMENTATIONS, "window sums", shifted)
    (cell,) = [cell for cell in declared("convolution", "suite.sizes=[8]").cells if cell.column == "window sums"]
    with (
        pytest.raises(
            DataError, match=r"window sums gives another result than scipy convolve2d for an image of \(8, 8"
        ),
        cell.make(trial_in(tmp_path)),
    ):
        pass


def test_a_photo_is_taken_where_a_folder_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROBE_DATA", str(tmp_path))  # whose photos are left alone
    folder = tmp_path / "photos"
    folder.mkdir()
    photograph(60, 90).save(folder / "a.jpg")
    find, cfg = declared("convolution").find, bench_config("suite=convolution", f"data.root={folder}")
    assert find(Request(cfg, "image_folder", ()), tmp_path / "none") == NOISE_FOUND
    found = find(Request(cfg, "image_folder", (f"data.root={folder}",)), tmp_path / "scratch")
    assert (found.title, found.generated) == ("the middle of a.jpg, in grey", False)
    image = cells.grey_image(found.facts["photo"], 16)
    assert (image.shape, image.dtype) == ((16, 16), np.float32)
    assert 0 <= image.min() < image.max() <= 1
    assert not (tmp_path / "scratch").exists()  # no links to it
    with cells.convolve(trial_in(tmp_path / "cell", found), name=REFERENCE, side=16, kernel=3) as work:
        assert work.repeat() == 1
    (folder / "a.jpg").write_bytes(b"no photo")
    with pytest.raises(DataError, match=r"a\.jpg cannot be read as a photo .*; remove it, or leave data\.root out"):
        find(Request(cfg, "image_folder", (f"data.root={folder}",)), tmp_path / "again")
    (folder / "a.jpg").unlink()
    with pytest.raises(DataError, match=r"data\.root=.*photos holds no JPEG photo"):
        find(Request(cfg, "image_folder", (f"data.root={folder}",)), tmp_path / "again")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Report]]:
    """A result's folder, in which each profiler's cell measured once, and what they found."""
    folder, found = tmp_path_factory.mktemp("result"), {}
    for cell in profiled_cells(20):
        with cell.make(trial_in(folder / "cells" / slug(cell.name))) as work:
            found[cell.column] = measure(cell, work, 0.0)
    return folder, found


def test_profilers_tell_where_the_same_work_spends_its_time(profiled: tuple[Path, dict[str, Report]]) -> None:
    folder, found = profiled
    assert list(found) == [PLAIN, *LOOKING]
    for cell in profiled_cells(20):
        report, place = found[cell.column], folder / "cells" / slug(cell.name)
        assert report.images == [20]
        own = {part: report.figures[part] for part in PARTS}
        assert min(own.values()) >= 0
        assert sum(own.values()) > 0
        profile = load_profile(place)
        assert (profile is None) == (cell.column == PLAIN)
        if profile:
            assert {part: profile.of_parts()[part] for part in PARTS} == pytest.approx(own)
            assert (place / PAGE).is_file() == (profile.samples is not None)
            if profile.samples:
                assert f"20 convolutions by im2col, seen by {cell.column}" in (place / PAGE).read_text(encoding="utf-8")
    assert found[EVENTS].figures[CALLS] > 20 * 882 * 2  # _get_indices, and what it calls in C
    assert found[EVENTS].figures[TO_CALLEE] > 0


def test_the_page_shows_growth_profiles_and_how_far_they_disagree(profiled: tuple[Path, dict[str, Report]]) -> None:
    folder, found = profiled
    suite = declared("convolution", "quick=true")
    record = record_of(
        suite,
        {
            cell.name: [found[cell.column] if cell.table == PROFILERS else Report([1e-6 * int(cell.row) ** 2], [1.0])]
            for cell in suite.cells
            if cell.table == PROFILERS or cell.column in {"four loops", REFERENCE}
        },
    )
    growth, events, samples, apart = found_sections = sections(record, folder)
    assert growth.text.splitlines()[0] == "four loops: n^2.00 (2.00 to 2.00) for n = 8 to 64; n^2.00 for n = 32 to 64"
    assert "n²: k² products a pixel, each in Python" in repr(growth.parts)
    for section, names, drawn in ((events, LOOKING[:2], 0), (samples, LOOKING[2:], 2)):
        shown = repr(section.parts)
        links = re.findall(r"link='\./(cells/[^']*)'", shown)
        assert len(links) == shown.count("Pre(") == drawn
        assert all((folder / link).is_file() for link in links)
        assert all(f"Heading(text='{name}'" in shown for name in names)
        assert "_get_indices" in shown
    assert "17,640" in repr(events.parts)
    (rows,) = (part.rows for part in apart.parts if isinstance(part, Table))
    assert [sum(str(cell).endswith("%") for cell in row) for row in rows] == [6] * len(PARTS) + [5]
    assert LESS in repr(apart.parts)
    page = render(suite, record, found_sections)
    assert all(section.title.replace("'", "&#39;") in page for section in found_sections)
    assert sections(record_of(suite, {cell.name: "it broke" for cell in suite.cells}), folder) == []


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


@pytest.mark.parametrize("of_called", [0.0, 0.25, 1.0])
def test_the_price_of_calls_is_taken_back(of_called: float) -> None:
    """Whoever bears it: of a function that is called 1,000 times, and calls others, in C too, 3,000 times."""
    price, truth, received, made = 0.002, 1.5, 1000 + 2000, 3000
    own = truth + price * (of_called * received + (1 - of_called) * made)
    assert corrected(own, received, made, price, of_called) == pytest.approx(truth)
    assert corrected(own, received, made, -price, of_called) == own  # noise, not a price
    assert corrected(own, received, made, 100 * price, of_called) == 0  # nothing beyond nothing


def made_up(
    suite: Suite, powers: Mapping[str, float], failed: Mapping[str, str] | None = None, trials: int = 7
) -> dict[str, Any]:
    """Times that grow with these powers of the side, ways that failed, and profiles of 1, 2 and 1.5 seconds."""
    failed = {"timer": "no timer here", **(failed or {})}
    profiles: dict[str, tuple[float, dict[str, float]]] = {
        PLAIN: (1.0, dict(zip(PARTS, (0.7, 0.2, 0.1), strict=True))),
        EVENTS: (2.0, dict(zip((*PARTS, TO_CALLEE, TO_CALLER, CALLS), (0.8, 1.1, 0.1, 1e-7, 3e-7, 1e6), strict=True))),
        SAMPLES: (1.5, dict(zip(PARTS, (0.75, 0.6, 0.15), strict=True))),
    }
    found: dict[str, list[Report] | str] = {}
    for cell in suite.cells:
        if cell.column in failed:
            found[cell.name] = failed[cell.column]
        elif cell.table == TIME and cell.column in powers:
            found[cell.name] = [Report([1e-6 * float(cell.row) ** powers[cell.column]], [1.0])] * trials
        elif cell.table == PROFILERS and cell.column in profiles:
            seconds, figures = profiles[cell.column]
            found[cell.name] = [Report([seconds], [20.0], None, figures)] * 7
    return record_of(suite, found)


def bare(sentence: str) -> str:
    """Without intervals."""
    return re.sub(r" \([^)]* to [^)]*\)", "", sentence)


def test_figures_become_sentences() -> None:
    suite = declared("convolution", "quick=true")
    record = made_up(suite, {"four loops": 2, REFERENCE: 1, "native": 0.5, "torch conv2d": 0.75})
    said = [bare(sentence) for sentence in conclusions(record)]
    assert said[0] == (
        f"At 64x64 native is the fastest of 4 ways: {figure(0.008)} ms, {figure(8**0.5)} times as fast as torch conv2d."
    )
    assert f"at 64x64 native is {figure(8**0.5)} times as fast as torch conv2d" in said[1]
    assert said[2].endswith(f"as long: cProfile {figure(2)}, pyinstrument {figure(1.5)}.")
    assert said[3] == "cProfile and pyinstrument disagree about 15.0% of im2col's time."
    assert said[4].endswith("they are off: cProfile by 35.0%, pyinstrument by 20.0%.")
    assert len(said) == 5
    slower = conclusions(made_up(suite, {REFERENCE: 1, "native": 1.5, "torch conv2d": 1.25}))
    assert slower[0].startswith("At 64x64 scipy convolve2d is the fastest of 3 ways:")
    assert f"torch conv2d is {figure(8**0.5)} times as fast as native" in bare(slower[1])
    same = conclusions(made_up(suite, {"native": 1, "torch conv2d": 1}))
    assert "torch conv2d has the shortest time of 2 ways: " in same[0]
    assert "native (no measurable difference)" in bare(same[0])
    assert "(no measurable difference)" in same[1]


def test_few_trials_have_no_verdict() -> None:
    suite = declared("convolution", "quick=true")
    record = made_up(suite, {REFERENCE: 1, "native": 0.5, "torch conv2d": 0.75}, trials=1)
    first, second, *_ = conclusions(record)
    assert "native has the shortest time of 3 ways: " in first
    assert "torch conv2d (too few trials to tell)" in first
    assert second.endswith("(too few trials to tell).")
    assert "too few" not in conclusions(made_up(suite, {"native": 0.5, "torch conv2d": 0.75}, trials=2))[0]


def test_a_way_that_failed_everywhere_is_not_compared() -> None:
    suite = declared("convolution", "quick=true")
    powers = {"four loops": 2, REFERENCE: 1, "window sums": 1.5}
    record = made_up(suite, powers, {"native": "no compiler", "im2col": "too large"})
    said = conclusions(record)
    assert "of 3 ways" in said[0]
    assert not [each for each in said if "native" in each]


def test_a_power_is_told_with_the_sides_that_it_is_over() -> None:
    suite = declared("convolution", "suite.sizes=[8,16,256,512]")
    growth = sections(made_up(suite, {"four loops": 2, REFERENCE: 1}), Path())[0].text
    assert "four loops: n^2.00 (2.00 to 2.00) for n = 8 to 256; " in growth
    assert "scipy convolve2d: n^1.00 (1.00 to 1.00) for n = 8 to 512; " in growth
    assert conclusions(record_of(suite, {cell.name: "it broke" for cell in suite.cells})) == []
