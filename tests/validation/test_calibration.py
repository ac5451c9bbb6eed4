"""Intervals that are stretched by the ledger hold what is measured as often as they say, and say when they do not."""

import math
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from strobe.diagnose import calibrated
from strobe.diagnose.calibrated import Calibration
from strobe.diagnose.promise import gain
from strobe.errors import DataError
from strobe.measure.statistics import conformal, share
from strobe.records.run import Figure
from strobe.validation import ledger
from strobe.validation.calibrate import calibrate, main, told
from support.ledger_entries import entry

REAL = calibrated.calibration


def predicted(cell: int, error: float, width: float = 0.1) -> ledger.Entry:
    """A prediction of 2 with an interval of so many logarithms either way, that was wrong by ``error`` of them."""
    ends = {"median": 2.0, "low": 2 * math.exp(-width), "high": 2 * math.exp(width)}
    more = {"cell": f"cell {cell}", "half": "held_out", "predicted": ends}
    return entry("loader", f"cause {cell % 4}", measured=2 * math.exp(error), **more)


def test_the_next_score_lies_below_as_often_as_the_level_says() -> None:
    random = np.random.default_rng(1)
    for count in (9, 14, 40):
        scores = random.standard_cauchy((4000, count + 1)) ** 2
        inside = [row[-1] <= (conformal(list(row[:-1]), 0.9) or 0.0) for row in scores]
        assert 0.9 - 0.015 <= np.mean(inside) <= 0.9 + 1 / (count + 1) + 0.015
    assert conformal([1.0] * 8, 0.9) is None


@pytest.mark.parametrize(
    ("count", "total", "low", "high"), [(0, 10, 0.0, 0.3085), (5, 10, 0.1871, 0.8129), (10, 10, 0.6915, 1.0)]
)
def test_a_share_has_the_interval_of_clopper_and_pearson(count: int, total: int, low: float, high: float) -> None:
    found = share(count, total)  # the ends are those of published tables
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_a_prediction_is_scored_in_widths_of_its_own_interval_on_that_side() -> None:
    uneven = replace(predicted(0, 0.0), predicted={"median": 2.0, "low": 2 * math.exp(-0.4), "high": 2 * math.exp(0.1)})
    for error, score in ((0.2, 1.1094), (-0.2, 0.4682), (0.0, 0.0)):  # over hypot(0.1, 0.15) and hypot(0.4, 0.15)
        assert replace(uneven, measured=2 * math.exp(error)).score == pytest.approx(score, abs=1e-4)
    none = replace(uneven, predicted={"median": 2.0, "low": 2.0, "high": 2.0}, measured=2 * math.exp(0.1))
    assert none.score == pytest.approx(0.1 / calibrated.OTHER_ERRORS)
    assert replace(none, measured=None).score is None


def test_a_stretched_interval_holds_as_far_as_scores_do_and_is_scored_as_its_own(tmp_path: Path) -> None:
    entries = [predicted(cell, 0.01 * (cell + 1), width=0.05) for cell in range(19)]
    found = calibrate([*entries, replace(predicted(99, 5.0), half="developed")])
    assert found is not None
    assert (found.cells, found.level) == (19, 0.9)
    assert found.quantile == pytest.approx(1.13842, abs=1e-5)  # the 18th of 19 errors, 0.18, over hypot(0.05, 0.15)
    path = tmp_path / "calibration.json"
    found.save(path)
    assert REAL(path) == found
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(calibrated, "calibration", lambda: found)
        wide = calibrated.calibrated(Figure(2.0, 2 * math.exp(-0.05), 2 * math.exp(0.05)))
        assert wide.level == 0.9
        assert (wide.low, wide.high) == (pytest.approx(2 * math.exp(-0.18)), pytest.approx(2 * math.exp(0.18)))
    ends = {"median": 2.0, "low": wide.low, "high": wide.high, "level": 0.9}
    for one in entries:
        again = replace(one, predicted=ends, quantile=found.quantile)
        assert again.score == pytest.approx(one.score)
        assert again.inside == (one.cell != "cell 18")


def test_the_last_run_of_a_cell_counts_and_too_few_cells_give_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [predicted(cell, 0.05) for cell in range(9)]
    assert calibrate(entries[:8] * 2) is None
    found = calibrate([predicted(0, 3.0), *entries])
    assert found is not None
    assert found.quantile == pytest.approx(0.27735, abs=1e-5)
    path = tmp_path / "ledger.jsonl"
    ledger.append(path, entries[0])
    with pytest.raises(SystemExit, match="too few"):
        main([str(path)])
    for one in entries[1:]:
        ledger.append(path, one)
    main([str(path), "--dry-run"])
    assert "stretched by 0.28, by 9 predictions" in capsys.readouterr().out


def test_coverage_can_fail_by_a_cause_that_is_unlike_the_others_and_in_the_other_half() -> None:
    alike = [predicted(cell, 0.05) for cell in range(40) if cell % 4]
    odd = [predicted(cell, 1.0) for cell in range(0, 40, 4)]
    other = [replace(one, half="developed", measured=4.0) for one in alike[:5]]
    found = calibrate([*alike, *odd])
    assert found is not None
    lines = told([*alike, *odd, *other], found)
    assert re.search(r"30 of 40 held \(75%, 95% interval 59% to 87%\)", lines[1])
    assert "0 of 5 held" not in lines[2]  # the odd cause has made intervals wide: 10 widths of 0.1
    unseen = [replace(one, half="unseen") for one in other[:3]]  # which intervals are not calibrated on either
    lines = told([*alike, *other, *unseen], calibrate([*alike, *unseen]))
    assert "developed cells: 0 of 5 held" in lines[2]
    assert "unseen cells: 0 of 3 held" in lines[3]


def test_a_promise_says_its_level_where_it_has_one() -> None:
    finding = {"cause": "loader", "overrides": ["a=1"], "predicted_speedup": {"median": 2.0, "low": 1.8, "high": 2.2}}
    assert gain(finding) == "2.0x (1.8 to 2.2)"
    finding["predicted_speedup"] |= {"level": 0.9}
    assert gain(finding) == "2.0x (90%: 1.8 to 2.2)"


def test_what_the_program_comes_with_can_be_read_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    shipped = REAL()
    assert shipped is None or (shipped.level == 0.9 and shipped.quantile > 0 and shipped.cells >= 9)
    assert REAL(tmp_path / "none.json") is None
    Calibration(0.9, 2.0, 12, "a processor", "abc").save(path := tmp_path / "calibration.json")
    path.write_text(path.read_text()[:-10])
    with pytest.raises(DataError, match="is damaged"):
        REAL(path)


def test_what_the_program_comes_with_has_the_form_in_which_it_is_written(tmp_path: Path) -> None:
    shipped, made = REAL(), calibrate([predicted(cell, 0.05) for cell in range(9)])
    assert shipped is not None
    assert made is not None
    kinds = {name: type(value) for name, value in asdict(made).items()}
    assert {name: type(value) for name, value in asdict(shipped).items()} == kinds
    shipped.save(path := tmp_path / "calibration.json")
    assert path.read_text() == calibrated.CALIBRATION.read_text()
