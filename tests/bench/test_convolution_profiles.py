"""Both profiles of some work, as trees that add up: made-up calls, and real ones of im2col."""

import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from strobe.bench.convolution.call_tree import Call, Roots, own_seconds, total, tree_text, walk, without_builtins
from strobe.bench.convolution.event_profile import EventProfile, price_of_a_call, profile_events
from strobe.bench.convolution.event_tree import Edge, Function, call_tree
from strobe.bench.convolution.implementations import IMPLEMENTATIONS
from strobe.bench.convolution.sampling_profile import SamplingProfile, profile_samples
from strobe.bench.convolution.timer_profile import profile_by_timer

TIMES = 20  # of 882 elements each


def convolving(name: str) -> Callable[[], None]:
    image, kernel = np.arange(49, dtype=np.float32).reshape(7, 7), np.ones((3, 3), np.float32) / 9

    def work() -> None:
        for _ in range(TIMES):
            IMPLEMENTATIONS[name](image, kernel)

    return work


@pytest.fixture(scope="module", params=[True, False], ids=["with functions in C", "without"])
def events(request: pytest.FixtureRequest) -> EventProfile:
    return profile_events(convolving("im2col"), builtins=request.param)


@pytest.fixture(scope="module", params=[profile_samples, profile_by_timer], ids=["pyinstrument", "timer"])
def samples(request: pytest.FixtureRequest) -> SamplingProfile:
    profile: SamplingProfile = request.param(convolving("im2col"), interval=0.0001)
    return profile


def check_sums(roots: Roots) -> None:
    assert roots
    for call in walk(roots):
        assert call.own >= 0
        assert call.own + sum(child.seconds for child in call.children) == pytest.approx(call.seconds, rel=1e-6)
    assert total(roots) == pytest.approx(sum(call.own for call in walk(roots)))
    assert total(roots) == pytest.approx(sum(own_seconds(roots).values()))


def names(roots: Roots) -> set[str]:
    return {call.name for call in walk(roots)}


def named(roots: Roots, function: str) -> list[Call]:
    return [call for call in walk(roots) if call.name.endswith(f"({function})") or call.name == function]


def test_calls_are_counted_as_in_the_source_document(events: EventProfile) -> None:
    rows = {row.name.rpartition("(")[2].rstrip(")"): row for row in events.rows}
    assert rows["_get_indices"].calls == TIMES * 882  # 88,200 of 100 repetitions
    assert rows["im2col_naive"].calls == rows["naive"].calls == TIMES
    assert list(events.rows) == sorted(events.rows, key=lambda row: (-row.own, row.name))
    assert all(0 <= row.own <= row.cumulative * (1 + 1e-9) for row in events.rows)


def test_a_tree_of_events_adds_up(events: EventProfile) -> None:
    check_sums(events.roots)
    assert len(events.roots) == 1
    assert events.roots[0].name.endswith("(work)")
    assert total(events.roots) == pytest.approx(sum(row.own for row in events.rows))
    assert total(events.roots) <= events.seconds
    (indices,) = named(events.roots, "_get_indices")
    assert indices.calls == pytest.approx(TIMES * 882)
    (caller,) = named(events.roots, "im2col_naive")
    assert indices in caller.children
    seconds = own_seconds(events.roots)
    for row in events.rows[:8]:
        assert seconds[row.name] == pytest.approx(row.own, rel=1e-3)


def test_functions_of_one_name_in_a_line_are_all_timed() -> None:
    first, second = (lambda: factorial(300)), (lambda: factorial(150))

    def work() -> None:
        for call in (first, second, second):
            call()

    profile = profile_events(work)
    (row,) = (row for row in profile.rows if row.name.endswith("(<lambda>)"))
    assert row.calls == 3
    check_sums(profile.roots)
    assert [root.name.endswith("(work)") for root in profile.roots] == [True]
    (found,) = named(profile.roots, "factorial")
    assert found.calls == pytest.approx(3)
    assert total(profile.roots) == pytest.approx(sum(row.own for row in profile.rows))


def test_functions_in_c_are_seen_only_when_asked_for() -> None:
    with_c, without = (profile_events(convolving("im2col"), builtins=builtins) for builtins in (True, False))
    assert "<built-in method numpy.empty>" in names(with_c.roots)
    assert not [call for call in walk(without.roots) if call.builtin]
    assert not [name for name in names(with_c.roots) if "lsprof" in name]  # the profiler's own end
    folded = without_builtins(with_c.roots)
    check_sums(folded)
    assert total(folded) == pytest.approx(total(with_c.roots))
    assert names(folded) <= names(without.roots)


def test_a_tree_of_samples_adds_up(samples: SamplingProfile) -> None:
    check_sums(samples.roots)
    assert samples.samples > 0
    assert len(samples.roots) == 1
    assert samples.roots[0].name.endswith("(work)")  # neither pytest nor the profiler
    assert all(call.calls is None for call in walk(samples.roots))
    assert named(samples.roots, "_get_indices")
    check_sums(without_builtins(samples.roots))


def test_both_profilers_use_the_same_names(events: EventProfile, samples: SamplingProfile) -> None:
    for function in ("work", "__call__", "naive", "im2col_naive", "_get_indices"):
        found = {call.name for roots in (events.roots, samples.roots) for call in named(roots, function)}
        assert len(found) == 1
        assert "/" not in found.pop()


def test_the_recursive_one_is_a_tree_too() -> None:
    profile = profile_events(convolving("im2col recursive"))
    check_sums(profile.roots)
    (recursive,) = named(profile.roots, "im2col_recursive")
    assert recursive.calls == pytest.approx(TIMES)  # those from outside
    (row,) = (row for row in profile.rows if row.name == recursive.name)
    assert row.calls == TIMES * (1 + 9)  # 9 rows of the padded image
    assert own_seconds(profile.roots)[row.name] == pytest.approx(row.own, rel=1e-6)
    assert total(profile.roots) == pytest.approx(sum(row.own for row in profile.rows))
    check_sums(profile_samples(convolving("im2col recursive"), interval=0.0001).roots)


def test_a_function_is_shared_out_among_its_callers() -> None:
    roots = call_tree(
        {
            "main": Function(1, 1.0, 11.0),
            "a": Function(1, 1.0, 4.0, {"main": Edge(1, 1.0, 4.0)}),
            "b": Function(2, 2.0, 6.0, {"main": Edge(2, 2.0, 6.0)}),
            "shared": Function(7, 2.0, 7.0, {"a": Edge(3, 1.0, 3.0), "b": Edge(4, 1.0, 4.0)}),
            "<leaf>": Function(10, 5.0, 5.0, {"shared": Edge(10, 5.0, 5.0)}),
        }
    )
    leaves = [Call("<leaf>", 3.0, 3.0, 6.0), Call("<leaf>", 2.0, 2.0, 4.0)]
    b = Call("b", 6.0, 2.0, 2, (Call("shared", 4.0, 1.0, 4, (leaves[0],)),))
    a = Call("a", 4.0, 1.0, 1, (Call("shared", 3.0, 1.0, 3, (leaves[1],)),))
    assert roots == (Call("main", 11.0, 1.0, 1, (b, a)),)
    assert without_builtins(roots)[0].children[0].children == (Call("shared", 4.0, 4.0, 4),)


def test_functions_that_call_each_other_are_one_place() -> None:
    roots = call_tree(
        {
            "main": Function(1, 1.0, 10.0),
            "even": Function(3, 2.0, 9.0, {"main": Edge(1, 0.5, 9.0), "odd": Edge(2, 1.5, 5.0)}),
            "odd": Function(2, 3.0, 7.0, {"even": Edge(2, 3.0, 7.0)}),
            "leaf": Function(5, 4.0, 4.0, {"even": Edge(3, 1.0, 1.0), "odd": Edge(2, 3.0, 3.0)}),
        }
    )
    check_sums(roots)
    assert own_seconds(roots) == pytest.approx({"main": 1.0, "even": 2.0, "odd": 3.0, "leaf": 4.0})
    assert [call.name for call in walk(roots)] == ["main", "even", "leaf", "odd"]


def factorial(number: int) -> int:
    return number * factorial(number - 1) if number else 1


@pytest.mark.parametrize("builtins", [True, False])
def test_recursion_ends(builtins: bool) -> None:
    for work in (lambda: factorial(200), lambda: [factorial(number) for number in range(50)]):
        profile = profile_events(work, builtins=builtins)
        check_sums(profile.roots)
        assert len(named(profile.roots, "factorial")) == 1
        assert total(profile.roots) == pytest.approx(sum(row.own for row in profile.rows))


def test_names_hold_no_path_and_no_address() -> None:
    profile = profile_events(lambda: [IMPLEMENTATIONS[name](np.ones((9, 9)), np.ones((3, 3))) for name in NUMPYS])
    text = tree_text(profile.roots, least=0.0)
    assert "/" not in text
    assert " at 0x" not in text


NUMPYS = ("window sums", "sliding_window_view", "scipy convolve2d", "scipy fftconvolve", "im2col recursive")


def test_the_text_is_the_tree() -> None:
    leaf, small = Call("a.py:2(leaf)", 0.3, 0.3, 1200), Call("<len>", 0.001, 0.001, 1)
    roots = (Call("a.py:1(main)", 1.0, 0.699, 1, (leaf, small)),)
    first, second = tree_text(roots).replace("\u00a0", " ").splitlines()
    assert first == " 100% a.py:1(main): 1 s, own 699 ms, 1 call"
    assert second == "  30%   a.py:2(leaf): 300 ms, own 300 ms, 1,200 calls"
    assert len(tree_text(roots, least=0.0).splitlines()) == 3
    assert tree_text((Call("a.py:1(main)", 1.0, 1.0),)).endswith("own 1\u00a0s")  # not counted
    assert tree_text(()) == "nothing was seen"


def test_an_empty_profile_is_empty() -> None:
    assert profile_samples(lambda: None, interval=10).roots == ()


@pytest.mark.parametrize("profile", [profile_events, profile_samples])
def test_a_profiler_beside_another_is_refused(profile: Callable[[Callable[[], None]], object]) -> None:
    sys.setprofile(lambda *_: None)
    try:
        with pytest.raises(RuntimeError, match="Another profiler runs in this thread"):
            profile(lambda: None)
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("profile", [profile_events, profile_samples, profile_by_timer])
def test_a_profiler_ends_with_an_error_of_the_work(profile: Callable[[Callable[[], None]], object]) -> None:
    def broken() -> None:
        raise KeyError("broken")

    for _ in range(2):
        with pytest.raises(KeyError, match="broken"):
            profile(broken)
        assert sys.getprofile() is None
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_timer_that_is_in_use_is_left_alone() -> None:
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        with pytest.raises(RuntimeError, match="The timer of this process is in use"):
            profile_by_timer(lambda: None)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_a_timer_interrupts_the_main_thread_only() -> None:
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(profile_by_timer, lambda: None)
        assert "Only the main thread" in str(refused.exception())
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_timers_handler_is_the_one_before() -> None:
    before = signal.getsignal(signal.SIGALRM)
    profile_by_timer(lambda: None)
    assert signal.getsignal(signal.SIGALRM) == before


def test_the_price_of_a_call_has_two_bearers() -> None:
    price = price_of_a_call(20_000)
    assert 0 < price.callee_share <= 1
    assert price.callee > 0
    assert price.caller >= 0
