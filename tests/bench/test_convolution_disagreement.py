"""How two profiles are compared, and what is taken from one for the price of looking."""

import pytest

from strobe.bench.convolution.call_tree import Call, own_seconds, total
from strobe.bench.convolution.disagreement import Difference, Looking, corrected, disagreement, shares
from strobe.bench.convolution.event_profile import Price


def test_equal_profiles_do_not_disagree() -> None:
    found = disagreement({"a": 3.0, "b": 1.0}, {"b": 10.0, "a": 30.0})
    assert found.distance == 0
    assert all(difference.more == 0 for difference in found.functions)


def test_profiles_of_nothing_in_common_disagree_wholly() -> None:
    assert disagreement({"a": 3.0, "b": 1.0}, {"c": 5.0}).distance == 1


def test_the_distance_is_the_share_that_would_have_to_move() -> None:
    found = disagreement({"a": 6.0, "b": 2.0, "c": 2.0}, {"a": 5.0, "b": 2.0, "d": 3.0})
    assert found.distance == pytest.approx(0.3)
    assert found.functions[0] == Difference("d", 0.0, 0.3)
    assert [difference.name for difference in found.functions] == ["d", "c", "a", "b"]
    assert sum(difference.more for difference in found.functions) == pytest.approx(0)
    assert disagreement({"a": 5.0, "b": 2.0, "d": 3.0}, {"a": 6.0, "b": 2.0, "c": 2.0}).distance == found.distance


@pytest.mark.parametrize("own", [{}, {"a": 0.0}])
def test_a_profile_without_time_is_refused(own: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="holds no time to share out; profile more"):
        shares(own)


def test_looking_has_a_factor_and_a_price() -> None:
    looking = Looking(without=2.0, under=3.0, calls=1000)
    assert looking.factor == 1.5
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
    found = disagreement(own_seconds(roots), {"main": 2.0, "often": 1.0, "<C>": 0.5})
    assert [difference.name for difference in found.functions if difference.more > 0] == ["often"]
