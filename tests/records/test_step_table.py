"""steps.csv as columns: the same cells as row by row, whatever is empty, short or damaged."""

import csv
from pathlib import Path

import pytest

from strobe.records import step_table
from strobe.records.step_table import read_table

HEAD = b'step,epoch,images,"callbacks/A, or B",memory\r\n'
ROWS = {
    "full": b"0,0,8,0.5,1e3\r\n1,0,8,0.25,-2\r\n",
    "empty cells": b"0,0,,,\r\n1,,,,7\r\n,,,,\r\n",
    "short rows": b"0,0\r\n1,0,8,0.25,9\r\n",
    "blank lines": b"0,0,8,1,1\r\n\r\n1,0,8,1,1\r\n",
    "cut off": b"0,0,8,1,1\r\n1,0,8,0.2",
    "infinite": b"0,0,8,inf,1\r\n",
}


def by_hand(content: bytes) -> list[dict[str, float]]:
    whole = (line.decode() for line in content.splitlines(keepends=True) if line.endswith(b"\n"))
    names, *rows = csv.reader(whole)
    return [{name: float(cell) for name, cell in zip(names, row, strict=False) if cell} for row in rows if row]


@pytest.mark.parametrize("chunk", [1, 20, 1 << 20])
@pytest.mark.parametrize("content", ROWS.values(), ids=ROWS.keys())
def test_columns_hold_the_cells_of_the_rows(
    content: bytes, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_table, "CHUNK", chunk)
    path = tmp_path / "steps.csv"
    path.write_bytes(HEAD + content)
    expected, some = by_hand(HEAD + content), {"epoch", "callbacks/A, or B"}
    assert read_table(path).rows() == expected
    chosen = [{name: value for name, value in row.items() if name in some} for row in expected]
    assert read_table(path, some.__contains__).rows() == chosen
    monkeypatch.setattr(step_table, "LONGEST_ROW", 25)
    assert read_table(path, last=1).rows() == expected[-1:]


@pytest.mark.parametrize(("row", "why"), [(b"0,0,8,1,1,1\r\n", "longer"), (b"0,zero,8,1,1\r\n", "zero")])
def test_a_damaged_file_is_refused(row: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_bytes(HEAD + row)
    with pytest.raises(ValueError, match=why):
        read_table(path)


def test_steps_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_bytes(HEAD + b"".join(b"%d,0,,0.5,\r\n" % step for step in range(6)))
    table = read_table(path)
    odd = table.take(table.get("step") % 2 == 1).take(table.get("epoch")[:3] == 0)
    assert (odd.get("step").tolist(), odd.get("images", 3.0).tolist(), len(odd)) == ([1, 3, 5], [3.0] * 3, 3)
    assert not odd.has("memory").any()
    assert odd.has("step").all()
