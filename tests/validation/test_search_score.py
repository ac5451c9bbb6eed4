"""The search beside an exhaustive grid: the cells, and what is counted."""

import itertools

import pytest

from strobe.duel.paired_trial import Duel
from strobe.measure.statistics import Estimate
from strobe.overrides import key_of
from strobe.validation.search import GRIDS, Rated, grid, lines, parse


def estimate(median: float) -> Estimate:
    return Estimate(median, 0.9 * median, 1.1 * median, 0.97, 6)


def trial(predicted: float | None, measured: float | None, *, bounded: bool = False) -> object:
    known = [value and estimate(value).as_record() for value in (predicted, measured)]
    return {"predicted": known[0], "measured": known[1], "bounded": bounded}


TUNED = {
    "trials": [trial(1.2, 1.5), trial(1.2, 1.1), trial(1.4, None), trial(1.0, 1.3, bounded=True), trial(None, 1.0)],
    "looks": [{"alternatives": 5}, {"alternatives": 4}, {"alternatives": 3}],
    "sides": [{}] * 8,
    "recommended": ["data=sample", "loader=native"],
    "seconds": 100.0,
    "trainings": 11,
    "proof": {"ratio": estimate(1.65).as_record(), "verdict": "faster", "error": None},
}
RATED = [Rated(["a"], 100.0, None), Rated(["b"], None, "it failed"), Rated(["c"], 90.0, None), Rated(["d"], 1.0, None)]


@pytest.mark.parametrize("data", GRIDS)
def test_the_grid_holds_each_combination_once(data: str) -> None:
    cells = list(grid(GRIDS[data]))
    assert len(set(cells)) == len(cells)
    assert len(cells) == len(list(itertools.product(*GRIDS[data].values())))
    assert cells[0] == tuple(itertools.chain.from_iterable(values[0] for values in GRIDS[data].values()))
    assert len({tuple(map(key_of, cell)) for cell in cells}) == 1


def test_the_score_counts_trainings_and_takes_the_least_of_the_finals() -> None:
    final = [(RATED[place], Duel(estimate(ratio), [], [])) for place, ratio in ((0, 0.97), (2, 1.2))]
    assert lines(TUNED, RATED, final, 50.0) == [
        "found: 1.65 times as fast as the start: data=sample loader=native",
        "found/grid's best: 0.97 (0.87 to 1.07) (aim 0.95)",
        "trainings: 11 beside 4 of the grid, 275% (aim 25%), and 20 of a loader or a model alone; "
        "100 s (aim 360) beside 50; "
        "1 cells failed",
        "prediction error: median 14.5% (aim 10%), 90th percentile 18.9% (aim 20%), of 2 predictions; "  # 9% and 20%
        "1 measured within the predicted interval (50%, 95% interval 1% to 99%; aim 85%); "
        "of 2 that promise a gain (the interval lies above 1), 1 (50%, 95% interval 1% to 99%; aim 85%)",
    ]


def test_a_search_that_found_nothing_has_a_score_too() -> None:
    nothing = {"trials": [], "looks": [{"alternatives": 0}], "seconds": 9.0, "trainings": 1, "proof": None}
    nothing["recommended"] = ["data=sample"]
    said = lines(nothing, RATED, [], 50.0)
    assert said[:2] == ["found: the start: data=sample", "found/grid's best: unknown (aim 0.95)"]
    assert "median unknown" in said[3]


@pytest.mark.parametrize(
    "given",
    [["nowhere"], ["sample", "--seconds", "0"], ["sample", "--seconds", "nan"], ["sample", "--finalists=0"], []],
)
def test_wrong_arguments_are_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(given)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err
