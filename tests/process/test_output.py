"""Whatever becomes of what a command prints, it goes on; one whose product that is says so at its end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT

SAY = """
import os, sys
from strobe.process.launch import start
from strobe.process.output import lasting_output, note
def main():
    print("a \\u2022 b")
    print("error \\u2022", file=sys.stderr)
    note("noted")
    assert open(sys.argv[2], "w").fileno() > 2
    assert os.get_inheritable(1) and os.get_inheritable(2)
    sys.exit(7)
if sys.argv[1] == "start":
    start(main)
lasting_output()
main()
"""
BARE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def said(how: str, tmp_path: Path, redirection: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
    """What Python says, run by a shell with a redirection."""
    return subprocess.run(
        [
            "bash",
            "-c",
            f'"$@" {redirection}; exit ${{PIPESTATUS[0]}}',
            "",
            sys.executable,
            "-c",
            SAY,
            how,
            tmp_path / "x",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "ascii"}, BARE, {"PYTHONIOENCODING": "utf-8"}])
def test_what_an_encoding_lacks_is_replaced(tmp_path: Path, variables: dict[str, str]) -> None:
    done = said("lasting", tmp_path, **variables)
    shown = ("•", "•") if variables.get("PYTHONIOENCODING") == "utf-8" else ("?", "\\u2022")
    assert (done.returncode, done.stdout) == (7, f"a {shown[0]} b\n")
    assert done.stderr == f"error {shown[1]}\nnoted\n"


@pytest.mark.parametrize("how", ["lasting", "start"])
@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-", "2>&-", "<&- >&- 2>&-", "2>&1 | true"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nobody_needs_to_read_it(tmp_path: Path, how: str, redirection: str, unbuffered: str) -> None:
    done = said(how, tmp_path, redirection, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 7
    assert "Error" not in done.stderr


@pytest.mark.parametrize(("how", "code"), [("lasting", 7), ("start", 1)])
def test_a_full_disk_ends_nothing_and_fails_a_command_whose_product_is_what_it_prints(
    tmp_path: Path, how: str, code: int
) -> None:
    done = said(how, tmp_path, ">/dev/full")
    assert done.returncode == code
    assert ("Not all could be printed (No space left on device)" in done.stderr) == (code == 1)
    assert "Traceback" not in done.stderr
