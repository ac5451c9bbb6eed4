"""What is measured, and in which order: pure functions."""

import pytest

from strobe.app.sweep.plan import in_order, names, of_cells
from strobe.errors import ConfigError
from strobe.records.sweep import Cell, Sweep
from support.refusals import refusal

CELLS = [Cell(number, [f"data.batch_size={2**number}"]) for number in range(8)]


def order(seed: int, repeats: int = 3) -> list[tuple[int, int]]:
    return [(repeat, cell.number) for repeat, cell in in_order(CELLS, repeats, seed)]


def test_each_round_visits_every_cell_in_another_order() -> None:
    visits = order(seed=0)
    rounds = [[number for repeat, number in visits if repeat == wanted] for wanted in (1, 2, 3)]
    assert [repeat for repeat, _ in visits] == [1] * 8 + [2] * 8 + [3] * 8
    assert all(sorted(numbers) == list(range(8)) for numbers in rounds)
    assert len({tuple(numbers) for numbers in [*rounds, range(8)]}) == 4


def test_the_order_is_the_seeds_alone() -> None:
    assert order(seed=1) == order(seed=1) != order(seed=2)
    assert order(seed=1, repeats=2) == order(seed=1, repeats=3)[:16]
    assert [cell.number for _, cell in in_order(CELLS[::-1], 1, 1)] == [number for _, number in order(1, 1)]


def test_a_cell_does_not_get_the_sweeps_own_keys() -> None:
    jobs = [["loader=native", "sweep.repeats=3", "++sweep.seed=1"], ["loader=skimage", "sweep.repeats=3"]]
    assert of_cells(jobs) == [["loader=native"], ["loader=skimage"]]


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([["seed=1", "threads=1"], ["threads=1", "seed=1"]], "(threads=1 seed=1): a value is given twice"),
        ([["seed=1", "sweep.repeats=1"], ["seed=1", "sweep.repeats=2"]], "sweep.repeats is of the sweep as a whole"),
    ],
)
def test_two_cells_cannot_be_the_same(jobs: list[list[str]], said: str) -> None:
    assert said in refusal(lambda: of_cells(jobs), ConfigError)


def test_a_cell_is_called_after_what_differs() -> None:
    cells = [Cell(0, ["seed=1", "loader=native"]), Cell(1, ["seed=1", "loader=skimage", "threads=2"])]
    assert names(cells) == {0: "loader=native", 1: "loader=skimage threads=2"}
    assert names(cells[:1]) == {0: "seed=1 loader=native"}
    assert names([]) == {}


def test_numbers_stay_when_values_are_added() -> None:
    sweep = Sweep("", [], 1, 0, "", cells=[Cell(0, ["a=1", "b=1"]), Cell(1, ["a=2", "b=1"])])
    assert [sweep.cell(given).number for given in (["a=3", "b=1"], ["b=1", "a=2"], ["a=4", "b=1"])] == [2, 1, 3]
    assert [cell.overrides[0] for cell in sweep.cells] == ["a=1", "a=2", "a=3", "a=4"]
