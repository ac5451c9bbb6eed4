"""What Strobe reads, made up in several sizes: each becomes a row of a table."""

import re

import pytest

from strobe.validation import scale


@pytest.mark.slow
def test_each_size_is_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(scale, "FOLDERS", 2)
    monkeypatch.setattr(scale, "MOST_LINKS", 50)
    scale.main(["--files", "80", "400", "--steps", "40", "--cells", "2"])
    rows = re.findall(r"^\| (\d+) \|(.+)\|$", capsys.readouterr().out, re.MULTILINE)
    assert [count for count, _ in rows] == ["80", "400", "40", "2"]
    assert all(float(cell.replace(",", "")) > 0 for _, cells in rows for cell in cells.split("|"))


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(SystemExit, match=r"ended with 3: because"):
        scale.spent("-c", "import sys; print('because', file=sys.stderr); sys.exit(3)")
