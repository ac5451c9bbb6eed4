"""The command ``strobe compare``: what it prints, writes, and how it exits."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from strobe.compare.__main__ import main
from strobe.compare.command import conclude
from strobe.errors import StrobeError
from strobe.overrides import as_typed
from support.run_folders import write_run, write_sweep

FILES = {"comparison.json", "comparison.csv", "comparison.html"}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    cells = [("loader=skimage", [100, 101, 99]), ("loader=native", [200, 203, 198]), ("loader=pil", ["it broke", "it"])]
    return write_sweep(tmp_path / "sweep", cells)


def ended(*arguments: str | Path) -> int | str:
    """The exit code, or the one line that is said in its place."""
    with pytest.raises((SystemExit, StrobeError)) as stop:
        main([str(argument) for argument in arguments])
    code = stop.value.code if isinstance(stop.value, SystemExit) else str(stop.value)
    assert isinstance(code, (int, str))
    assert "\n" not in str(code)
    return code


def test_a_sweep_gets_its_comparison_beside_its_cells(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(sweep) == 0
    said = capsys.readouterr().out
    table = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert table["native"].split()[1:3] == ["fastest", "200"]
    assert "faster" in table["native"]
    assert "61%" in table["native"]  # of the step is waiting
    assert "baseline" in table["skimage"]
    assert "failed" in table["pil"]
    assert "loader=pil failed: it broke" in said
    assert said.splitlines()[-1] == str(sweep / "comparison.html")
    assert {path.name for path in sweep.iterdir() if path.is_file()} == {"sweep.json", *FILES}

    conclude(sweep, as_typed)  # as at the sweep's end
    assert capsys.readouterr().out.splitlines()[-1] == str(sweep / "comparison.html")
    record = json.loads((sweep / "comparison.json").read_text())
    assert (record["command"], record["title"]) == (f"strobe compare {sweep}", str(sweep))
    with (sweep / "comparison.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [cell["name"] for cell in record["cells"]]
    assert [row["runs"] for row in rows] == ["3", "3", "0"]
    assert float(rows[0]["speedup_median"]) == record["cells"][0]["speedup"]["median"]
    assert (rows[2]["loader"], rows[2]["error"], rows[2]["total_seconds"]) == ("pil", "it broke", "")


def test_runs_and_an_output_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [write_run(tmp_path / "a", ["loader=pil"], 10), write_run(tmp_path / "b", ["loader=native"], 20)]
    assert ended(*runs, "--out", tmp_path / "out" / "deep") == 0
    assert {path.name for path in (tmp_path / "out" / "deep").iterdir()} == FILES
    monkeypatch.chdir(tmp_path)
    assert ended("a", "b") == 0
    [page] = tmp_path.glob("outputs/comparisons/*/*/comparison.html")
    runs_told = json.loads(page.with_name("comparison.json").read_text())["cells"][0]["runs"]
    assert (runs_told[0]["directory"], runs_told[0]["report"]) == ("b", "../../../../b/report.html")


def test_the_gate_s_words_and_exit_code_are_the_command_s(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(sweep, "--baseline", "native", "--fail-if-slower", "5%") == 3
    gate = "--fail-if-slower 5%: regression: loader=skimage is"
    assert re.search(gate + r" 0\.\d+ \(.*\) times as fast; loader=pil failed", capsys.readouterr().out)
    (sweep / "sweep.json").unlink()  # so that the failed cell is not known
    for limit, code in (("60%", 0), ("0.5", 4)):
        assert ended(sweep, "--baseline", "native", "--fail-if-slower", limit, "--out", sweep) == code


def test_strict_refuses_and_writes_nothing(tmp_path: Path, sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_run(tmp_path / "other", ["loader=native"], host="elsewhere")
    said = str(ended(sweep, other, "--strict", "--out", tmp_path / "out"))
    assert said.startswith("--strict: The runs differ in host: box in 6 runs, elsewhere in")
    assert not (tmp_path / "out").exists()
    assert ended(sweep, other, "--out", tmp_path / "out") == 0
    assert "not the same: The runs differ in host" in capsys.readouterr().out
    assert ended(sweep, "--strict") == 0


def test_what_cannot_be_compared_is_said(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sweep / "file").touch()
    for arguments, said in (
        ((sweep / "gone",), "gone is not a directory"),
        (("x" * 300,), "is not a directory"),  # a name that none can have
        ((sweep, "--baseline", "x"), "the cells are: loader=native"),
        ((sweep, "--baseline", "x" * 300), "is neither a directory nor a cell"),
        ((sweep, "--out", sweep / "file"), "choose another folder with --out"),
        *(((sweep, f"--fail-if-slower={share}"), f"{share} is not a share; give") for share in ("fast", "100%", "-5%")),
    ):
        assert said in str(ended(*arguments))
    assert ended(sweep, "--baseline", " ") == 2
    assert "--baseline is empty" in capsys.readouterr().err


def test_one_error_of_cells_of_which_none_measured_anything_is_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = write_sweep(tmp_path, [("loader=pil", ["it broke"]), ("loader=native", ["it broke"])])
    assert ended(sweep / ".." / sweep.name) == 1
    said = capsys.readouterr().out
    assert "loader=pil failed, loader=native failed: it broke" in said
    assert said.splitlines()[-1] == str(sweep / "comparison.html")  # without dots


def test_a_full_device_is_told_in_a_sentence(sweep: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "strobe.compare", str(sweep)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("Not all could be printed (No space left on device)")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("width", [60, 120, 180])
def test_a_terminal_gets_what_fits(
    sweep: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLUMNS": str(width), "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    ended(sweep)
    headings = next(line for line in capsys.readouterr().out.splitlines() if "images/s" in line)
    assert ("optimizer" in headings) == (width == 180)
    assert ("waiting" in headings) == (width >= 120)


def test_of_a_speed_up_that_is_too_wide_to_tell_no_figure_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rates, told in (([90, 400, 70], "not known: 3 runs differ too much"), ([150, 152, 148], "1.50 (1.")):
        cells = [("loader=skimage", [100, 101, 99]), ("loader=native", rates)]
        ended(write_sweep(tmp_path / str(rates[0]), cells))
        shown = capsys.readouterr().out
        assert told in shown
        settled = "For a verdict, train longer, or raise sweep.repeats." in shown
        assert settled == ("not known:" in shown) == told.startswith("not known:")
