"""The table of environments, of environments that are made up: real ones take minutes each."""

import os
from pathlib import Path

import pytest

from strobe.validation import matrix
from strobe.validation.matrix import ENVIRONMENTS, Environment, made, main

PYTEST = """#!/bin/sh
echo "FAILED tests/test_one.py::test_it"
echo "$@ with $CXX"
echo "1 failed, 30 passed, 2 skipped in 1.00s"
"""


def test_counts_are_those_of_pytest_and_an_environment_that_cannot_be_made_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(environment: Environment, folder: Path) -> dict[str, str]:
        if environment.python == "3.13":
            raise RuntimeError("there is no such Python")
        (folder / ".venv" / "bin").mkdir(parents=True)
        program = folder / ".venv" / "bin" / "python"
        program.write_text(PYTEST if environment.compiler == "g++" else PYTEST.replace("1 failed, ", ""))
        program.chmod(0o755)
        return {"torch": "2.11.0"}

    monkeypatch.setattr(matrix, "made", make)
    kept = ["--keep", str(tmp_path), "--seed", "7"]
    assert main([*kept, "clang-3.11", "--", "tests/app"]) == 0
    assert "randomly-seed=7 tests/app with clang++" in (tmp_path / "clang-3.11.log").read_text()
    assert main([*kept, "oldest-3.11", "locked-3.13"]) == 1
    said = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in said.splitlines() if "│" in line]
    assert [row[:1] + row[5:9] for row in rows] == [
        ["clang-3.11", "30", "0", "0", "2"],
        ["oldest-3.11", "30", "1", "0", "2"],
        ["locked-3.13", "-", "-", "-", "-"],
    ]
    assert "locked-3.13 was not tried: there is no such Python" in said
    assert said.count("FAILED tests/test_one.py::test_it") == 2


def test_what_keeps_an_environment_from_being_made_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no-such-compiler is not installed"):
        made(Environment("3.11", compiler="no-such-compiler"), tmp_path / "one")
    monkeypatch.setattr(matrix, "CHECKOUT", tmp_path / "nowhere")
    with pytest.raises(RuntimeError, match=r"git clone .* says: fatal: .*nowhere"):
        made(Environment("3.11", compiler="sh"), tmp_path / "two")
    with pytest.raises(SystemExit):
        main(["no-such-environment"])


def test_warnings_of_other_libraries_fail_no_test_where_they_are_not_locked(tmp_path: Path) -> None:
    program = tmp_path / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    assert os.access(program, os.X_OK)
    assert "-W" not in matrix.tested(ENVIRONMENTS["locked-3.11"], tmp_path, [])[1]
    assert "-Wignore::ImportWarning" in matrix.tested(ENVIRONMENTS["oldest-3.11"], tmp_path, [])[1]
