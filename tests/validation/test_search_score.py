"""The search beside an exhaustive grid: the cells, and what is counted."""

import itertools

import pytest

from strobe.duel.paired_trial import Duel
from strobe.measure.statistics import Estimate, Interval
from strobe.overrides import applied, key_of
from strobe.validation.search import GRIDS, Rated, grid, lines, parse, score, shuffled


def estimate(median: float) -> Estimate:
    return Estimate(median, 0.9 * median, 1.1 * median, 0.97, 6)


def ratio(median: float) -> Interval:
    return estimate(median).as_record()


def trial(predicted: float | None, measured: float | None, *, kept: bool = False, bounded: bool = False) -> object:
    return {
        "predicted": predicted and ratio(predicted),
        "measured": measured and ratio(measured),
        "kept": kept,
        "bounded": bounded,
    }


TUNED = {
    "trials": [
        trial(1.2, 1.5, kept=True),
        trial(1.2, 1.1, kept=True),
        trial(1.4, None),
        trial(1.0, 1.3, bounded=True),
        trial(None, 1.0),
    ],
    "looks": [{"alternatives": 5}, {"alternatives": 4}, {"alternatives": 3}],
    "seconds": 100.0,
    "trainings": 11,
    "proof": {"ratio": ratio(1.65), "verdict": "faster", "error": None},
}
RATED = [Rated(["a"], 100.0, None), Rated(["b"], None, "it failed"), Rated(["c"], 90.0, None), Rated(["d"], 1.0, None)]


@pytest.mark.parametrize("data", GRIDS)
def test_the_grid_holds_each_combination_once(data: str) -> None:
    cells = list(grid(GRIDS[data]))
    assert len(set(cells)) == len(cells)
    assert len(cells) == len(list(itertools.product(*GRIDS[data].values())))
    assert cells[0] == tuple(itertools.chain.from_iterable(values[0] for values in GRIDS[data].values()))
    assert len({tuple(map(key_of, cell)) for cell in cells}) == 1


def test_the_order_is_random_and_the_seeds() -> None:
    cells = [applied(["data=sample"], cell) for cell in grid(GRIDS["sample"])]
    assert shuffled(cells, 1) == shuffled(cells, 1) != shuffled(cells, 2)
    assert sorted(shuffled(cells, 1)) == sorted(cells)


def test_the_score_counts_trainings_and_takes_the_least_of_the_finals() -> None:
    final = [
        (RATED[0], Duel(estimate(0.97), [], [], "no difference")),
        (RATED[2], Duel(estimate(1.2), [], [], "faster")),
    ]
    found = score(TUNED, RATED, final, 50.0)
    assert (found.cells, found.failed) == (4, 1)
    assert found.trainings == 11
    assert found.alternatives == 12
    assert found.best == estimate(0.97)
    assert found.errors == pytest.approx([1.2 / 1.1 - 1, 1 - 1.2 / 1.5])
    assert found.inside == 1
    told = " ".join(lines(found))
    assert "0.97" in told
    assert "1.65" in told


def test_a_search_that_found_nothing_has_a_score_too() -> None:
    nothing = {"trials": [], "looks": [{"alternatives": 0}], "seconds": 9.0, "trainings": 1, "proof": None}
    found = score(nothing, RATED, [], 50.0)
    assert (found.best, found.gain, found.errors) == (None, None, [])
    assert "unknown" in " ".join(lines(found))


@pytest.mark.parametrize("given", [["nowhere"], ["sample", "--seconds", "0"], ["sample", "--seconds", "nan"], []])
def test_wrong_arguments_are_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(given)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err
