"""How two profiles are compared, and what is taken from one for the price of looking."""

import pytest

from strobe.bench.convolution.call_tree import Call, own_seconds, total
from strobe.bench.convolution.disagreement import Looking, corrected, shares, total_variation
from strobe.bench.convolution.event_profile import Price


def test_equal_profiles_do_not_disagree() -> None:
    assert total_variation({"a": 3.0, "b": 1.0}, {"b": 10.0, "a": 30.0}) == 0


def test_profiles_of_nothing_in_common_disagree_wholly() -> None:
    assert total_variation({"a": 3.0, "b": 1.0}, {"c": 5.0}) == 1


def test_the_distance_is_the_share_that_would_have_to_move() -> None:
    first, second = {"a": 6.0, "b": 2.0, "c": 2.0}, {"a": 5.0, "b": 2.0, "d": 3.0}
    assert total_variation(first, second) == pytest.approx(0.3)
    assert total_variation(second, first) == total_variation(first, second)


@pytest.mark.parametrize("own", [{}, {"a": 0.0}])
def test_a_profile_without_time_is_refused(own: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="holds no time to share out; profile more"):
        shares(own)


def test_looking_has_a_price() -> None:
    looking = Looking(without=2.0, under=3.0, calls=1000)
    assert looking.a_call == pytest.approx(0.001)
    assert Looking(2.0, 3.0).a_call is None


def looked_at(price: float, callee: float) -> Call:
    """``main`` calls ``often`` 1,000 times, and that a function in C 3,000 times; truly 2.0, 1.0 and 0.5 seconds."""
    in_c = 0.5 + 3000 * price * callee
    often = 1.0 + price * (1000 * callee + 3000 * (1 - callee))
    main = 2.0 + price * (callee + 1000 * (1 - callee))
    leaf = Call("<C>", in_c, in_c, 3000)
    middle = Call("often", often + in_c, often, 1000, (leaf,))
    return Call("main", main + often + in_c, main, 1, (middle,))


@pytest.mark.parametrize("callee", [0.0, 0.25, 1.0])
def test_the_price_of_calls_is_taken_back(callee: float) -> None:
    """Whoever bears it, what was added to a made-up truth is found again."""
    price, truth = 0.002, {"main": 2.0, "often": 1.0, "<C>": 0.5}
    roots = (looked_at(price, callee),)
    looking = Looking(3.5, 3.5 + 4001 * price, 4001)
    found = corrected(roots, looking, Price(callee, 1 - callee))
    assert own_seconds(found) == pytest.approx(truth)
    assert total(found) == pytest.approx(3.5)


def test_nothing_is_taken_beyond_nothing_or_given() -> None:
    roots = (Call("b", 1.001, 1.0, 1, (Call("a", 0.001, 0.001, 100),)),)
    assert own_seconds(corrected(roots, Looking(0.5, 1.0, 101), Price(1.0, 0.0)))["a"] == 0
    assert corrected(roots, Looking(1.5, 1.0, 101), Price(1.0, 0.0)) == roots  # noise, not a price


def test_it_is_the_caller_of_many_that_looks_longer() -> None:
    roots = (looked_at(0.002, callee=0.0),)
    found, truth = shares(own_seconds(roots)), shares({"main": 2.0, "often": 1.0, "<C>": 0.5})
    assert [name for name in truth if found[name] > truth[name]] == ["often"]
