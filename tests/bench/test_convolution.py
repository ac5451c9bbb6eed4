"""Every implementation computes what SciPy does; what each profiler sees of im2col, and of work made up for it."""

import itertools
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

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
    Profile,
    load_profile,
    price_of_a_call,
    profile_by_timer,
    profile_events,
    profile_samples,
    save_profile,
    tree_text,
)
from strobe.bench.suites.convolution.reading import own_of_parts

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


@pytest.fixture(scope="module")
def events() -> Profile:
    return profile_events(convolving)


@pytest.fixture(scope="module", params=[True, False], ids=["all", "in Python"])
def either(request: pytest.FixtureRequest, events: Profile) -> Profile:
    """With functions in C timed, and not."""
    return events if request.param else profile_events(convolving, builtins=False)


@pytest.fixture(scope="module", params=[profile_samples, profile_by_timer], ids=["pyinstrument", "timer"])
def samples(request: pytest.FixtureRequest) -> Profile:
    profile: Profile = request.param(convolving, interval=0.0001)
    return profile


def named(profile: Profile, function: str) -> list[tuple[str, ...]]:
    """The stacks that end in a function."""
    return [stack for stack in profile.own if stack[-1].endswith(f"({function})")]


def test_calls_are_counted_as_in_the_source_document_and_stacks_add_up(either: Profile) -> None:
    rows = {row.name.rpartition("(")[2].rstrip(")"): row for row in either.rows}
    assert rows["_get_indices"].calls == TIMES * 882  # 88,200 of 100 repetitions
    assert rows["im2col_naive"].calls == rows["by_im2col"].calls == TIMES
    assert list(either.rows) == sorted(either.rows, key=lambda row: (-row.own, row.name))
    (indices,) = named(either, "_get_indices")
    assert either.calls[indices] == pytest.approx(TIMES * 882)
    assert [indices[:-1]] == named(either, "im2col_naive")
    assert {stack[0].rpartition("(")[2] for stack in either.own} == {"convolving)"}
    assert sum(either.own.values()) == pytest.approx(sum(row.own for row in either.rows))
    assert sum(either.own.values()) <= either.seconds
    assert min(either.own.values()) >= 0
    for row in either.rows[:5]:
        own = sum(seconds for stack, seconds in either.own.items() if stack[-1] == row.name)
        assert own == pytest.approx(row.own, rel=1e-3)


def test_functions_in_c_are_seen_only_when_asked_for(events: Profile, either: Profile) -> None:
    seen = {name for stack in either.own for name in stack}
    assert ("<built-in method numpy.empty>" in seen) == (either is events)
    assert not [name for name in seen if "lsprof" in name]  # the profiler's own end
    assert either is events or not [name for name in seen if name.startswith("<")]
    assert sum(own_of_parts(events.own).values()) == pytest.approx(sum(events.own.values()))


def test_stacks_of_samples_are_the_works(events: Profile, samples: Profile) -> None:
    assert samples.samples
    assert not samples.calls
    assert {stack[0].rpartition("(")[2] for stack in samples.own} == {"convolving)"}  # neither pytest nor the profiler
    assert named(samples, "_get_indices")
    for function in ("convolving", "__call__", "by_im2col", "im2col_naive", "_get_indices"):
        found = {name for one in (events, samples) for stack in one.own for name in stack if f"({function})" in name}
        assert len(found) == 1  # the same names, without folders
        assert "/" not in found.pop()


def test_names_hold_no_address() -> None:
    ways = ("sliding_window_view", "scipy convolve2d", "scipy fftconvolve", "im2col recursive")
    profile = profile_events(lambda: [IMPLEMENTATIONS[name](np.ones((9, 9)), np.ones((3, 3))) for name in ways])
    text = tree_text(profile, least=0.0)
    assert "(im2col_recursive)" in text
    assert "/" not in text
    assert " at 0x" not in text


def work_of(number: int) -> int:
    return sum(range(1000 * number))


def test_a_function_is_shared_out_among_its_callers_in_proportion_to_their_time() -> None:
    def little() -> None:
        work_of(10)

    def much() -> None:
        for _ in range(3):
            work_of(100)

    profile = profile_events(lambda: (little(), much()))
    for_little, for_much = sorted(named(profile, "work_of"), key=lambda stack: profile.calls[stack])
    assert (for_little[-2][-8:], for_much[-2][-6:]) == ("(little)", "(much)")
    assert (profile.calls[for_little], profile.calls[for_much]) == pytest.approx((1, 3))
    below = {stack[-3:-1]: seconds for stack, seconds in profile.own.items() if "sum" in stack[-1]}
    assert sum(below.values()) == pytest.approx(next(row.own for row in profile.rows if "sum" in row.name), rel=1e-6)
    assert below[for_much[-2:]] > below[for_little[-2:]] > 0


def test_functions_of_one_name_in_a_line_are_all_timed() -> None:
    first, second = (lambda: factorial(300)), (lambda: factorial(150))
    profile = profile_events(lambda: [call() for call in (first, second, second)])
    (row,) = (row for row in profile.rows if row.name.endswith("(<lambda>)") and row.calls == 3)
    assert sum(profile.calls[stack] for stack in profile.own if stack[-1] == row.name) == pytest.approx(3)
    assert sum(profile.own.values()) == pytest.approx(sum(row.own for row in profile.rows))


def factorial(number: int) -> int:
    return number * factorial(number - 1) if number else 1


@pytest.mark.parametrize("builtins", [True, False])
def test_a_function_that_calls_itself_is_one_place(builtins: bool) -> None:
    profile = profile_events(lambda: [factorial(number) for number in range(50)], builtins=builtins)
    (stack,) = named(profile, "factorial")
    assert profile.calls[stack] == pytest.approx(50)  # those from outside
    assert sum(profile.own.values()) == pytest.approx(sum(row.own for row in profile.rows))


MADE_UP = Profile(
    1.2,
    {("a.py:1(main)",): 0.699, ("a.py:1(main)", "a.py:2(leaf)"): 0.3, ("a.py:1(main)", "<built-in method len>"): 0.001},
    {("a.py:1(main)",): 1, ("a.py:1(main)", "a.py:2(leaf)"): 1200},
)


def test_the_text_is_the_tree() -> None:
    first, second = tree_text(MADE_UP).splitlines()
    assert first == " 100% a.py:1(main): 1 s, own 699 ms, 1 call"
    assert second == "  30%   a.py:2(leaf): 300 ms, own 300 ms, 1,200 calls"
    assert tree_text(MADE_UP, least=0.0).endswith("own 1 ms")  # whose calls are not counted
    assert tree_text(Profile(1.0, {})) == "nothing was seen"


def test_a_profile_is_read_as_it_was_written_and_pyinstrument_draws_it(tmp_path: Path, events: Profile) -> None:
    assert load_profile(tmp_path) is None
    for profile in (events, MADE_UP):
        save_profile(tmp_path, profile, "ten convolutions")
        assert load_profile(tmp_path) == profile
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    data = json.loads(page.partition("const sessionData = ")[2].partition(";\n")[0])
    root = data["frame_tree"]
    assert (root["identifier"], root["time"]) == ("main\x00a.py\x001", pytest.approx(1.0))
    assert {child["identifier"] for child in root["children"]} >= {"leaf\x00a.py\x002", "len\x00<built-in>\x000"}
    assert 'viewMode:"timeline"' in page
    assert "googleapis" not in page  # nothing is asked of a network
    (tmp_path / FILE).write_text('{"roots": [{}]}')
    assert load_profile(tmp_path) is None


def test_nothing_is_seen_of_no_work(tmp_path: Path) -> None:
    profile = profile_samples(lambda: None, interval=10)
    assert profile.own == {}
    save_profile(tmp_path, profile, "nothing")
    assert not (tmp_path / PAGE).exists()


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
