"""The picture of recorded steps, read back pixel by pixel."""

import pytest
import torch

from strobe.callbacks.timeline import Interval, Step, _shares, draw

MS = 1_000_000
LEFT, RIGHT = 104, 1104  # the plot's edges in pixels
WAIT, FORWARD, OTHER = (0xEE, 0x66, 0x77), (0x44, 0x77, 0xAA), (0xD4, 0xD4, 0xD4)
READ, DECODE = (0x77, 0xAA, 0xDD), (0xEE, 0x88, 0x66)


def steps(count: int, length: int = 100, start: int = 10**15) -> list[Step]:
    """Steps that follow each other: 40% waiting, 50% forward, the rest nothing known; `length` in ms."""
    made = []
    for number in range(count):
        begin = start + number * length * MS
        edges = [begin + length * MS * percent // 100 for percent in (0, 40, 90, 100)]
        phases = (Interval("data_wait", edges[0], edges[1]), Interval("forward", edges[1], edges[2]))
        made.append(Step(number, begin, edges[3], phases))
    return made


def rows(picture: torch.Tensor, color: tuple[int, int, int], x: int) -> int:
    """How many separate blocks of a colour a vertical line at `x` meets."""
    same = (picture[:, x] == torch.tensor(color, dtype=torch.uint8)).all(dim=1).int()
    return int((same.diff(prepend=torch.zeros(1)) == 1).sum())


def widest(picture: torch.Tensor, color: tuple[int, int, int]) -> int:
    """Most pixels of a colour in one row of the plot."""
    plot = picture[:, LEFT:RIGHT]
    return int((plot == torch.tensor(color, dtype=torch.uint8)).all(dim=2).sum(dim=1).max())


@pytest.mark.parametrize("count", [1, 12, 13, 40])
def test_each_step_is_a_row_and_each_phase_a_block_of_its_length(count: int) -> None:
    picture = draw(steps(count))
    assert picture.dtype == torch.uint8
    assert picture.shape[1:] == (1200, 3)
    assert [rows(picture, color, x) for color, x in ((WAIT, 300), (FORWARD, 700), (OTHER, 1050))] == [count] * 3
    assert widest(picture, WAIT) == pytest.approx(400, abs=1)
    assert widest(picture, FORWARD) == pytest.approx(500, abs=1)
    assert widest(picture, OTHER) == pytest.approx(100, abs=1)


def test_many_steps_and_lanes_are_cut_to_a_size_that_can_be_read() -> None:
    lanes = {f"worker {n}": [Interval("read", 10**15, 10**15 + 200 * MS)] for n in range(100)}
    picture = draw(steps(100), lanes)
    assert (rows(picture, WAIT, 300), rows(picture, READ, 110)) == (40, 16)
    assert picture.shape == draw(steps(41), dict(list(lanes.items())[:17])).shape
    assert not picture.equal(draw(steps(101), lanes))  # it says how many there are


def test_a_very_long_step_does_not_squeeze_the_others() -> None:
    usual, slow = steps(3), steps(1, length=10_000)
    picture = draw([*usual, *slow])
    assert rows(picture, WAIT, LEFT + 100) == 4
    assert rows(picture, WAIT, RIGHT - 100) == 1
    assert widest(picture, FORWARD) == pytest.approx(1000 / 3 * 0.5, abs=1)


def test_workers_lie_on_the_clock_of_the_steps() -> None:
    start = 10**15
    lane = [
        Interval("read", start - 500 * MS, start + 100 * MS),  # the window begins within it
        Interval("decode", start + 200 * MS, start + 900 * MS),  # and ends within this
    ]
    picture = draw(steps(4), {"worker 0": lane, "": []})
    assert [rows(picture, READ, LEFT + x) for x in (1, 248, 252)] == [1, 1, 0]
    assert [rows(picture, DECODE, LEFT + x) for x in (498, 502, 998)] == [0, 1, 1]


def test_a_step_within_another_worker_interval_is_on_top() -> None:
    start = 10**15
    lane = [Interval("read", start, start + 50 * MS), Interval("decode", start, start + 100 * MS)]
    picture = draw(steps(1), {"worker 0": lane})
    assert [rows(picture, READ, 300), rows(picture, DECODE, 300), rows(picture, DECODE, 900)] == [1, 0, 1]


def test_time_not_covered_is_other_and_nothing_reaches_out_of_its_step() -> None:
    begin, end = 0, 100 * MS
    phases = (Interval("data_wait", begin - MS, begin + 25 * MS), Interval("forward", 75 * MS, end + 100 * MS))
    picture = draw([Step(7, begin, end, phases), Step(8, end, end + 200 * MS, ())])
    assert widest(picture, WAIT) == pytest.approx(125, abs=1)
    assert widest(picture, FORWARD) == pytest.approx(125, abs=1)
    assert widest(picture, OTHER) == pytest.approx(1000, abs=1)


def test_the_legend_tells_each_phases_share_of_all_steps() -> None:
    tiny = Step(1, 0, 100 * MS, (Interval("transfer", -MS, MS // 2), Interval("forward", 20 * MS, 120 * MS)))
    entries = [text for text, _ in _shares([*steps(1), tiny])]
    assert entries == ["data_wait 20%", "transfer <1%", "forward 65%", "other 15%"]
    assert [text for text, _ in _shares([Step(0, 0, 4, (Interval("backward", 0, 4),))])] == ["backward 100%"]


def test_odd_input_is_drawn() -> None:
    nothing = Step(0, 5, 5, ())
    long_name = {"a worker with a name that does not fit " * 9: [Interval("an action " * 40, 0, 9)]}
    picture = draw([nothing], long_name, title="a title that does not fit " * 30)
    assert picture.shape[1] == 1200
    margin = picture[:, 1184:]
    assert bool((margin == 255).all())
    assert picture.shape[0] == draw([nothing], {"w": [Interval("a", 0, 9)]}, title="t").shape[0]
    names = [Interval(f"action {n}", n, n + 1) for n in range(60)]
    assert draw(steps(1), {"w": names}).shape[0] > draw(steps(1), {"w": names[:2]}).shape[0]


def test_no_step_is_an_error() -> None:
    with pytest.raises(ValueError, match="steps is empty"):
        draw([])
