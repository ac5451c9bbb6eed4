"""Every implementation computes what SciPy does; what each profiler sees of im2col."""

import io
import itertools
import json
import pstats
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage
from scipy.signal import convolve2d

from strobe.app.native import convolution
from strobe.app.native.build import missing
from strobe.bench.suites.convolution import implementations
from strobe.bench.suites.convolution.implementations import (
    IMPLEMENTATIONS,
    by_im2col,
    im2col_naive,
    im2col_recursive,
    padded,
)
from strobe.bench.suites.convolution.profiles import (
    FILE,
    PAGE,
    STATISTICS,
    Profile,
    load_profile,
    price_of_a_call,
    profile_by_timer,
    profile_events,
    profile_samples,
    save_profile,
)
from strobe.bench.suites.convolution.suite import PARTS

Array = NDArray[np.floating]

LACKING = missing(convolution.LIBRARY)
NAMES = [
    pytest.param(name, marks=pytest.mark.skipif(name == "native" and LACKING is not None, reason=f"{LACKING}"))
    for name in IMPLEMENTATIONS
]
IMAGES = [(1, 1), (1, 7), (6, 1), (2, 2), (5, 12), (17, 16)]
KERNELS = [(1, 1), (3, 3), (2, 2), (1, 4), (3, 2), (9, 8)]  # the last larger than most images
DIMENSIONS = [((9,), (4,)), ((7, 5), (3, 2)), ((5, 4, 6), (3, 2, 1)), ((3, 4, 2, 5), (2, 3, 3, 2))]


def draw(shape: tuple[int, ...], dtype: type = np.float64, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tolerance(image: Array, kernel: Array) -> float:
    """How far rounding may go.

    A sum of m products in any order is off by m rounding errors of the sum of their sizes at most, which is no more
    than the product of the norms of image and kernel; an FFT by some log2 N, less than 16 here, of that product.
    """
    norms = np.linalg.norm(image.astype(np.float64)) * np.linalg.norm(kernel.astype(np.float64))
    return float((kernel.size + 16) * np.finfo(image.dtype).eps * norms)


def check(name: str, image: Array, kernel: Array) -> None:
    """Hold an implementation against SciPy in float64."""
    before = image.copy(), kernel.copy()
    found = IMPLEMENTATIONS[name](image, kernel)
    assert (found.shape, found.dtype) == (image.shape, image.dtype)
    expected = convolve2d(*(array.astype(np.float64) for array in (image, kernel)), mode="same")
    said = f"{image.shape} {kernel.shape}"
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance(image, kernel), err_msg=said)
    np.testing.assert_array_equal(image, before[0])
    np.testing.assert_array_equal(kernel, before[1])


@pytest.mark.parametrize("name", NAMES)
def test_an_implementation_equals_scipy(name: str) -> None:
    dtypes = itertools.cycle((np.float32, np.float64, np.float64))  # each kernel meets both
    for (seed, shape), reach in itertools.product(enumerate(IMAGES), KERNELS):
        dtype = next(dtypes)
        check(name, draw(shape, dtype, seed), draw(reach, dtype, seed + 1))


@pytest.mark.parametrize("name", NAMES)
def test_views_are_as_good_as_arrays(name: str) -> None:
    image, kernel = draw((10, 14)), draw((6, 4))
    image.flags.writeable = kernel.flags.writeable = False
    check(name, image, kernel)
    check(name, image.T, kernel.T)
    check(name, image[::-2, ::3], kernel[:, ::-1])
    check(name, image[3:9], kernel[::2, 1:][:, :1])


@pytest.mark.parametrize(("shape", "reach"), DIMENSIONS, ids=map(str, DIMENSIONS))
def test_im2col_works_in_any_dimension(shape: tuple[int, ...], reach: tuple[int, ...]) -> None:
    image, kernel = draw(shape), draw(reach, seed=1)
    whole = padded(image, reach)
    windows = np.lib.stride_tricks.sliding_window_view(whole, reach)
    np.testing.assert_array_equal(im2col_recursive(whole, reach), windows)
    np.testing.assert_array_equal(im2col_naive(whole, reach), windows)
    # ndimage puts the middle of an even side one element further on
    origin = [-1 if side % 2 == 0 else 0 for side in reach]
    expected = ndimage.convolve(image, kernel, mode="constant", origin=origin)
    found = by_im2col(im2col_recursive, whole, kernel)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance(image, kernel))


def test_the_recursive_one_computes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []
    inner = implementations.im2col_recursive

    def counting(image: Array, kernel_shape: tuple[int, ...]) -> Array:
        made.append(image.shape)
        return inner(image, kernel_shape)

    monkeypatch.setattr(implementations, "im2col_recursive", counting)
    counting(draw((6, 5, 4)), (3, 3, 3))
    assert made.count((5, 4)) == 6  # one for each plane, not for each plane and place in the kernel
    assert made.count((4,)) == 6 * 5
    assert len(made) == 1 + 6 + 6 * 5


def test_indices_are_exact_where_floats_are_not() -> None:
    large = 2**53 + 1
    assert list(implementations._get_indices(large, (2**50, 16))) == [large // 16, 1]


TIMES = 10  # of 882 elements each
Profiling = Callable[[Callable[[], object]], Profile]


def convolving() -> None:
    for _ in range(TIMES):
        IMPLEMENTATIONS["im2col"](np.arange(49, dtype=np.float32).reshape(7, 7), np.ones((3, 3), np.float32))


@pytest.fixture(scope="module", params=[True, False], ids=["all", "in Python"])
def events(request: pytest.FixtureRequest) -> Profile:
    """With functions in C timed, and not."""
    return profile_events(convolving, builtins=request.param)


def test_calls_are_counted_as_in_the_source_document_and_functions_in_c_are_their_callers(events: Profile) -> None:
    rows = {row.name.rpartition("(")[2].rstrip(")"): row for row in events.rows}
    assert rows["_get_indices"].calls == TIMES * 882  # 88,200 of 100 repetitions
    assert rows["im2col_naive"].calls == rows["by_im2col"].calls == TIMES
    assert list(events.rows) == sorted(events.rows, key=lambda row: (-row.own, row.name))
    assert not [name for name in rows if "lsprof" in name]  # the profiler's own end
    in_c = {row.name for row in events.rows if row.name.startswith("<")}
    name = rows["_get_indices"].name
    inner = 4 * TIMES * 882 if in_c else 0  # of len, range, numpy.empty and divmod
    assert ("<built-in method numpy.empty>" in in_c) == bool(in_c)
    assert (events.received[name], events.made.get(name, 0)) == (TIMES * 882 + inner, inner)
    assert not {*events.own} & in_c
    assert (events.own[name] > rows["_get_indices"].own) == bool(in_c)
    parts = events.of_parts()
    assert sum(parts[part] for part in PARTS) == pytest.approx(sum(row.own for row in events.rows))
    assert sum(row.own for row in events.rows) <= events.seconds


@pytest.mark.parametrize("profile", [profile_samples, profile_by_timer], ids=["pyinstrument", "timer"])
def test_stacks_of_samples_are_the_works_and_pyinstrument_draws_them(profile: Any, tmp_path: Path) -> None:
    found: Profile = profile(convolving, title="ten convolutions", interval=0.0001)
    assert found.samples
    assert not found.rows
    assert found.tree.startswith("100.0% convolving  test_convolution.py:")  # neither pytest nor the profiler
    assert "_get_indices  implementations.py:" in found.tree
    own = {name for name in found.own if "(_get_indices)" in name}
    assert own == {row.name for row in profile_events(convolving).rows if "(_get_indices)" in row.name}
    assert not [name for name in found.own if "/" in name]
    save_profile(tmp_path, found)
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    data = json.loads(page.partition("const sessionData = ")[2].partition(";\n")[0])
    assert data["frame_tree"]["identifier"].startswith("convolving\x00test_convolution.py\x00")
    assert data["frame_tree"]["time"] == pytest.approx(sum(found.own.values()), abs=1e-5)  # as it is written
    assert 'viewMode:"timeline"' in page
    assert "googleapis" not in page  # nothing is asked of a network


def test_names_hold_no_address_and_functions_of_one_name_in_a_line_are_all_timed() -> None:
    ways = ("sliding_window_view", "scipy convolve2d", "scipy fftconvolve", "im2col recursive")
    profile = profile_events(lambda: [IMPLEMENTATIONS[name](np.ones((9, 9)), np.ones((3, 3))) for name in ways])
    names = " ".join(row.name for row in profile.rows)
    assert "(im2col_recursive)" in names
    assert "/" not in names
    assert " at 0x" not in names
    first, second = (lambda: sum(range(300))), (lambda: sum(range(150)))
    profile = profile_events(lambda: [call() for call in (first, second, second)])
    assert [row.calls for row in profile.rows if row.name.endswith("(<lambda>)")].count(3) == 1


def test_a_profile_is_read_as_it_was_written_and_pstats_reads_cprofiles(tmp_path: Path) -> None:
    assert load_profile(tmp_path) is None
    profile = profile_events(convolving)
    save_profile(tmp_path, profile)
    assert load_profile(tmp_path) == replace(profile, files={})
    said = io.StringIO()
    pstats.Stats(str(tmp_path / STATISTICS), stream=said).print_stats("_get_indices")
    assert f"{TIMES * 882} " in said.getvalue()
    (tmp_path / FILE).write_text('{"roots": [{}]}')
    assert load_profile(tmp_path) is None


def test_the_clock_is_no_part_of_the_work() -> None:
    """A sample at each call: the work is short, as drawing them takes far longer."""
    for _ in range(5):
        own = profile_samples(lambda: [sorted(range(9)) for _ in range(30)], interval=1e-7).own
        assert own
        assert not [name for name in own if "perf_counter" in name]


def test_nothing_is_seen_of_no_work() -> None:
    profile = profile_samples(lambda: None, interval=10)
    assert (profile.own, profile.tree, profile.files) == ({}, "nothing was seen", {})


@pytest.mark.timeout(0)  # which would set the timer that this is about
@pytest.mark.parametrize("profile", [profile_events, profile_samples, profile_by_timer])
def test_a_profiler_ends_with_an_error_of_the_work(profile: Profiling) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            profile(lambda: 1 / 0)
        assert sys.getprofile() is None
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        assert signal.getsignal(signal.SIGALRM) == handler


def test_the_price_of_a_call_has_two_bearers() -> None:
    called, caller = price_of_a_call(20_000)
    assert called > 0
    assert caller >= 0
