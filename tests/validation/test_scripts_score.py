"""Strangers' scripts with a known mistake: the cases, and what is counted."""

import dataclasses
import json
from pathlib import Path

import pytest

from strobe.errors import DataError
from strobe.overrides import key_of
from strobe.probe.changes import KEYS
from strobe.validation.scripts import lines, load

CASES = Path(__file__).parents[1] / "tune/programs/cases.json"


def tuned(recommended: list[str], predicted: float, measured: float) -> dict[str, object]:
    figures = [{"low": 0.9 * value, "median": value, "high": 1.1 * value} for value in (predicted, measured)]
    trial = {"predicted": figures[0], "measured": figures[1], "bounded": False}
    first = {"told": "loader", "prescribed": ["engine.num_workers=4"]}
    return {"recommended": recommended, "trials": [trial], "trainings": 9, **first}


def test_each_case_can_be_searched_from_outside() -> None:
    cases = load(CASES)
    assert {case.half for case in cases} == {"developed", "held_out", "unseen"}
    for case in cases:
        assert case.cells[0] == []  # as the script is
        assert all(key_of(text) in KEYS for cell in case.cells for text in cell)
        told = next((cause for cause in case.remedy if cause in ("validation", "logging")), None)  # not searched
        assert any(case.is_right({"recommended": cell, "told": told}) for cell in case.cells)


def test_what_is_recommended_is_right_if_it_has_a_remedy() -> None:
    cases = {case.name: case for case in load(CASES)}
    archive, churn = cases["archive"], cases["churn_table"]
    told = lines(
        [
            (archive, tuned(["engine.num_workers=8", "threads=1"], 2.0, 2.0)),
            (churn, tuned(["model.fused=true"], 1.5, 1.2)),
        ],
        [0.99, 0.7],
    )
    assert told[0].startswith("first prescription right: 1 of 2 (")
    assert told[1].startswith("remedy recommended, or cause told first: 1 of 2")
    assert told[1].endswith("not of churn_table")
    often = dataclasses.replace(churn, remedy=("validation",))
    assert often.is_right({"recommended": [], "told": "validation"})
    assert not often.is_right({"recommended": [], "told": "loader"})
    assert "median 12.5%" in told[2]
    assert told[3].startswith("at least 0.95 of the grid's best: 1 of 2")
    cells = len(archive.cells) + len(churn.cells)
    assert told[4].startswith(f"found/best: 0.84 in the median (aim 0.95); 18 trainings beside {cells} of the grids, ")
    late = tuned(["engine.num_workers=8"], 2.0, 2.0) | {"told": "nothing", "prescribed": ["threads=1"]}
    assert (archive.is_right(late), archive.is_right(late, "prescribed")) == (True, False)


@pytest.mark.parametrize("content", ["", "[{}]", json.dumps([{"file": "no.py", "half": "", "remedy": [], "grid": []}])])
def test_a_file_without_cases_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "cases.json"
    file.write_text(content)
    with pytest.raises(DataError, match=r"cases\.json"):
        load(file)
