"""In which order things are measured."""

from collections import Counter

from strobe.measure.timing import mirrored, rounds, shuffled


def test_each_round_holds_every_item_in_an_order_of_its_own() -> None:
    visits = list(rounds("abc", range(60), seed=1))
    assert [number for number, _ in visits] == [number for number in range(60) for _ in "abc"]
    orders = ["".join(item for number, item in visits if number == one) for one in range(60)]
    assert {"".join(sorted(order)) for order in orders} == {"abc"}
    assert len(Counter(orders)) == 6
    assert visits == list(rounds("abc", range(60), seed=1)) != list(rounds("abc", range(60), seed=2))
    assert list(rounds("abc", range(7, 60), seed=1)) == visits[21:]  # as when a broken-off campaign goes on
    assert shuffled("abc", 7, 1) == list(orders[7])


def test_a_steady_drift_cancels_in_two_rounds() -> None:
    assert [mirrored("AB", number) for number in range(3)] == [["A", "B"], ["B", "A"], ["A", "B"]]
