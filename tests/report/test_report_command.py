"""``strobe report``: reports from records alone, and what it says when there are none."""

from pathlib import Path

import pytest

from strobe.diagnose import rank
from strobe.records.files import write_summary
from strobe.records.run import load_record
from strobe.report.__main__ import main
from support.pages import complete, steps


def make_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    write_summary(folder / "summary.json", complete() | {"verdict": "What was said before."})
    rows = steps(10).rows()
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (folder / "steps.csv").write_text("\n".join(lines) + "\n")
    return folder


def failure(*arguments: object, capsys: pytest.CaptureFixture[str], code: int = 1) -> str:
    """The one sentence with which the command ends, and the exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code == code
    said = capsys.readouterr().err.strip()
    assert said
    assert "\n" not in said
    return said


def test_it_says_where_the_report_is_and_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    before = (run / "summary.json").read_bytes()
    main([str(run)])
    path, verdict = capsys.readouterr().out.splitlines()
    assert path == str(run / "report.html")
    record = load_record(run)
    assert verdict.strip() == rank.verdict(record, rank.diagnose(record))  # the record itself says something else
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "What was said before." not in text
    assert (run / "summary.json").read_bytes() == before


def test_a_run_without_steps_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(tmp_path / "summary.json", {"schema": 1, "status": "failed", "verdict": "The run failed early."})
    main([str(tmp_path)])
    assert "The run failed before a step was measured." in capsys.readouterr().out


def test_a_sweep_has_a_report_for_each_run_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make_run(tmp_path / f"{number}-batch_size-{number}") for number in (2, 10, 1)]
    main([str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[::2] == [str(runs[at] / "report.html") for at in (2, 0, 1)]


def test_a_bad_run_among_good_ones_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = make_run(tmp_path / "good"), make_run(tmp_path / "bad")
    (bad / "summary.json").write_text('{"schema": 1, "sta')
    assert f"{bad / 'summary.json'} is damaged" in failure(bad, good, capsys=capsys)
    assert (good / "report.html").is_file()


def test_it_writes_no_deeper_than_a_sweep_and_says_what_it_cannot_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "sweeps" / "today" / "0")
    assert "has no summary.json" in failure(tmp_path, capsys=capsys)
    assert not [*tmp_path.rglob("report.html")]
    for path in (run / "summary.json", tmp_path / "nothing"):
        assert "is not a directory" in failure(path, capsys=capsys, code=2)
    (run / "report.html").mkdir()
    assert "report.html cannot be written (Is a directory)" in failure(run, capsys=capsys)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "strobe report outputs/runs/DATE/RUN" in capsys.readouterr().out
