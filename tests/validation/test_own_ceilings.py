"""The application's own ceilings beside those of a probe: what is counted; one real pair."""

from pathlib import Path

import pytest

from strobe.validation import own_ceilings
from strobe.validation.own_ceilings import lines
from support.refusals import refusal

OWN = [{"loader": 1000.0, "model": 100.0, "joint": 90.0, "transfer": None}] * 3
PROBED = [
    {"loader": 1000.0 * factor, "model": 80.0 * factor, "joint": None, "transfer": None} for factor in (0.98, 1, 1.02)
]


def test_the_ratio_over_all_pairs_counts_on_each_side_that_both_know() -> None:
    loader, model = lines(OWN, PROBED)
    assert loader == "loader: probed 1.00 (0.95 to 1.05) times its own, within 10% (3 pairs)"
    assert model.startswith("model: probed 0.80 (")
    assert model.endswith("not within 10% (3 pairs)")
    assert lines(OWN[:1], PROBED[:1], "[1/3] ")[0] == "[1/3] loader: 1,000 and probed 980 images/s, 0.98"


def test_without_pairs_there_is_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        own_ceilings.main(["--pairs", "0"])
    assert "must be above 0" in capsys.readouterr().err


def test_a_configuration_that_cannot_be_measured_ends_it(tmp_path: Path) -> None:
    assert "ended with code" in refusal(lambda: own_ceilings.main(["no.such=key", "--keep", str(tmp_path)]), SystemExit)


@pytest.mark.slow
def test_a_real_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [f"data.root={tmp_path / 'data'}", "--pairs", "1", "--seconds", "0.5", "--keep", str(tmp_path / "kept")]
    own_ceilings.main(["data=sample", *given])
    assert "[1/1] model: " in capsys.readouterr().out
