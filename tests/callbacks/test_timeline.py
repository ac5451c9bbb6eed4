"""The picture of recorded steps, read back from the figure."""

from typing import Any

import pytest
from matplotlib.colors import to_hex

from strobe.callbacks.figures import PHASE_COLOURS, pixels
from strobe.callbacks.timeline import Interval, Step, draw

MS = 1_000_000
START = 10**15
WAIT, FORWARD, OTHER = (PHASE_COLOURS[name] for name in ("data_wait", "forward", "other"))
READ, DECODE = "#77AADD", "#EE8866"


def steps(count: int, length: int = 100, start: int = START) -> list[Step]:
    """Steps that follow each other: 40% waiting, 50% forward, the rest nothing known; `length` in ms."""
    made = []
    for number in range(count):
        begin = start + number * length * MS
        edges = [begin + length * MS * percent // 100 for percent in (0, 40, 90, 100)]
        phases = (Interval("data_wait", edges[0], edges[1]), Interval("forward", edges[1], edges[2]))
        made.append(Step(number, begin, edges[3], phases))
    return made


def rows(axes: Any) -> list[list[tuple[str, float, float]]]:
    """Of each row the blocks, the later ones on top: colour, first and last millisecond."""
    return [
        [
            (to_hex(colour).upper(), *path.get_extents().intervalx.round(6))
            for colour, path in zip(row.get_facecolors(), row.get_paths(), strict=True)
        ]
        for row in axes.collections
    ]


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("count", [1, 13, 40])
def test_each_step_is_a_row_and_each_phase_a_block_of_its_length(count: int) -> None:
    (axes,) = draw(steps(count)).axes
    assert rows(axes) == [[(OTHER, 0, 100), (WAIT, 0, 40), (FORWARD, 40, 90)]] * count
    assert texts(axes) == ["100 ms"] * count
    assert axes.get_xlim() == (0, 100)


def test_many_steps_and_lanes_are_cut_to_a_size_that_can_be_read() -> None:
    lanes = {f"worker {n}": [Interval("read", START, START + 200 * MS)] for n in range(100)}
    figure = draw(steps(100), lanes)
    assert [len(rows(axes)) for axes in figure.axes] == [40, 1 + 16]
    told = [text.get_text() for text in figure.texts]
    assert told == ["100 steps, median 100 ms; the first 40 are drawn", "Loader workers: the first 16 of 100"]


def test_a_very_long_step_is_cut_and_marked_and_does_not_squeeze_the_others() -> None:
    (axes,) = draw([*steps(3), *steps(1, length=10_000)]).axes
    assert axes.get_xlim() == (0, 300)
    assert texts(axes) == ["100 ms", "100 ms", "100 ms", "10,000 ms", "//"]
    assert axes.texts[-1].get_position()[1] == 3


def test_workers_lie_on_the_clock_of_the_steps() -> None:
    lane = [
        Interval("read", START - 500 * MS, START + 100 * MS),  # the window begins within it
        Interval("decode", START + 200 * MS, START + 900 * MS),  # and ends within this
    ]
    axes = draw(steps(4), {"worker 0": lane, "": []}).axes[1]
    assert axes.get_xlim() == (0, 400)
    assert [(first, last) for _, first, last in rows(axes)[0]] == [(n * 100, n * 100 + 100) for n in range(4)]
    assert rows(axes)[1][1:] == [(READ, 0, 100), (DECODE, 200, 400)]
    assert len(rows(axes)[2]) == 1
    assert texts(axes) == ["0 to 3", "75% busy", "0% busy", "0", "1", "2", "3"]


def test_a_step_within_another_worker_interval_is_on_top() -> None:
    lane = [Interval("read", START, START + 50 * MS), Interval("decode", START, START + 100 * MS)]
    axes = draw(steps(1), {"worker 0": lane}).axes[1]
    assert rows(axes)[1][1:] == [(DECODE, 0, 100), (READ, 0, 50)]
    assert texts(axes)[1] == "100% busy"


def test_time_not_covered_is_other_and_nothing_reaches_out_of_its_step() -> None:
    phases = (Interval("data_wait", -MS, 25 * MS), Interval("forward", 75 * MS, 200 * MS))
    (axes,) = draw([Step(7, 0, 100 * MS, phases), Step(8, 100 * MS, 300 * MS, ())]).axes
    assert rows(axes) == [[(OTHER, 0, 100), (WAIT, 0, 25), (FORWARD, 75, 100)], [(OTHER, 0, 200)]]


def test_the_legend_tells_each_phases_share_of_all_steps() -> None:
    def entries(steps: list[Step]) -> list[str]:
        (legend,) = draw(steps).legends
        return [text.get_text() for text in legend.get_texts()]

    tiny = Step(1, 0, 100 * MS, (Interval("transfer", -MS, MS // 2), Interval("forward", 20 * MS, 120 * MS)))
    assert entries([*steps(1), tiny]) == ["data_wait 20%", "transfer <1%", "forward 65%", "other 15%"]
    assert entries([Step(0, 0, 4, (Interval("backward", 0, 4),))]) == ["backward 100%"]


def test_odd_input_is_drawn() -> None:
    lane = [Interval("an $action$ " * 40, 0, 9), *(Interval(f"action {n}", n, n + 1) for n in range(60))]
    picture = pixels(draw([Step(0, 5, 5, ())], {"a worker with a $name$ " * 9: lane}))
    assert 300 < picture.shape[0] < 1200
    assert 1000 < picture.shape[1] < 1700
    assert (picture[:, -20:] == 255).all()
