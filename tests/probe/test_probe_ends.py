"""``strobe probe`` where it cannot go on: asked to end, given mistakes, without room, or with nothing to measure."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from torch.utils.data._utils import worker

from strobe.callbacks.worker_lines import WorkerLines
from strobe.present.terminal import ProgressDisplay
from strobe.probe import __main__ as command
from strobe.probe.script import keep_until_now, probe_script
from strobe.process.fork import COLOURS, Failure
from support.entry_points import install
from support.interruptions import small_disk
from support.probed import STEPS, become, hashes, script
from support.refusals import ended


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)


def test_a_request_to_end_leaves_no_scratch_folder(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, time; print(os.environ['STROBE_PROBE'], flush=True); time.sleep(100)"
    )
    line = [sys.executable, "-m", "strobe.probe", "--yes", "--out", "out", "train.py"]
    output = tmp_path / "out" / "output.txt"
    with subprocess.Popen(line, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (output.is_file() and output.read_text().endswith("\n")):
            time.sleep(0.02)
        scratch = Path(json.loads(output.read_text())["scratch"])
        assert scratch.is_dir()
        process.terminate()
        _, said = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "Interrupted: nothing was measured. It takes up to 0:25 from the script's first training on" in said
    assert not scratch.exists()
    assert not output.parent.exists()


def test_what_was_measured_before_a_request_to_end_is_reported(tmp_path: Path) -> None:
    fit = "Net.validation_step = lambda *_: time.sleep(100)\ntrainer.fit(Net(), batches, batches)"
    script(tmp_path, STEPS, fit)
    line = [sys.executable, "-m", "strobe.probe", "--seconds", "0.4", "--yes", "--out", "out", "train.py"]
    asked = {"cwd": tmp_path, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, text=True, **asked) as process:
        assert process.stderr is not None
        while not (told := process.stderr.readline()).startswith("Validation and checkpoints alone"):
            assert told
        process.terminate()
        said, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "It was ended by SIGTERM" in said
    record = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (record["status"], record["script"]) == ("interrupted", "python train.py")
    assert record["ceilings"]["joint"] < record["ceilings"]["loader"]
    assert record["ceilings"]["reason"] == "it was ended before validation and checkpoints alone"
    assert record["verdict"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("summary.json", "steps.csv", "report.html", "output.txt")
    }


def test_mistakes_are_told_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, told in (
        (["none.py"], "there is no file none.py"),
        (["--seconds=0", "x.py"], "--seconds"),
        (["-m", "torch.distributed.run", "x.py"], "starts a script in several ranks"),
        ([], "strobe probe needs a script, as in: strobe probe train.py --epochs 3"),
        (["--secnds", "3", "x.py"], "--secnds is not an option of strobe probe; did you mean --seconds?"),
    ):
        code, said = ended(partial(command.main, arguments), capsys)
        assert code == 2
        assert told in said
        assert said.count("\n") == 1
    assert "STROBE_PROBE" not in os.environ


def test_a_record_that_cannot_be_written_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit")
    code, said = ended(partial(command.main, ["--yes", "--out", str(script), str(script)]), capsys)
    assert code == 2
    assert f"{script} cannot be a folder, because {script} is a file" in said


FILLING = """
def fill(net, batch):
    try:
        with open("DISK/filler", "ab", buffering=0) as file:
            while True: file.write(bytes(4096))
    except OSError: pass
Net.validation_step = fill
trainer.fit(Net(), batches, batches)
"""


def test_a_disk_that_is_full_in_the_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("strobe.probe.script._become", become)
    with small_disk(tmp_path / "disk", 1) as disk:
        path = script(tmp_path, STEPS, FILLING.replace("DISK", str(disk)))
        arguments = ["--seconds", "0.4", "--out", str(disk / "out"), "--yes", str(path)]
        code, said = ended(partial(command.main, arguments), capsys)
    assert code == 1
    assert f"Not measured: its record could not be written to {disk / 'out'}; free some space" in said


@pytest.mark.parametrize("named", [False, True])
def test_where_nothing_was_measured_nothing_is_left(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that was there before stays, with all that the user has in it; what the script said is shown."""
    (tmp_path / "train.py").write_text("print('one'); print('two'); raise SystemExit('no such data')")
    if named:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "report.html").write_text("mine")
    before = hashes(tmp_path)
    monkeypatch.chdir(tmp_path)
    code, said = ended(partial(command.main, [*(["--out", "mine"] if named else []), "--yes", "train.py"]), capsys)
    assert code == 1
    assert hashes(tmp_path) == before
    assert not (tmp_path / "strobe-runs").exists()
    assert said.splitlines()[-5:-1] == ["The script printed last:", "  one", "  two", "  no such data"]
    assert said.splitlines()[-1].startswith("Not measured: ")
    assert (
        "Running the script until its first training, then measuring for up to 0:25, longer if steps are slow\n" in said
    )  # a line a stage
    assert "\r" not in said


def test_the_folder_of_a_probes_workers_goes_where_nobody_has_read_it(tmp_path: Path) -> None:
    (place := tmp_path / "out").mkdir()
    loop, looking = worker._worker_loop, WorkerLines(place)
    try:
        (folder,) = place.iterdir()
        assert not keep_until_now(place, KeyboardInterrupt())
        assert not folder.exists()
    finally:
        looking.end()
    assert worker._worker_loop is loop


def test_a_stage_is_a_line_in_a_file_and_runs_down_in_a_terminal() -> None:
    for terminal in (False, True):
        drawn = io.StringIO()
        with ProgressDisplay(Console(file=drawn, force_terminal=terminal, width=80)) as display:
            display.stage("The loader alone", 65.4)
            time.sleep(0.15 * terminal)
        if terminal:
            assert "The loader alone 1:05 left" in COLOURS.sub("", drawn.getvalue())
        else:
            assert drawn.getvalue() == "The loader alone; about 1:05 left\n"


def test_a_script_that_takes_too_long_is_told_with_the_time_of_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ready', flush=True); import time; time.sleep(100)")
    found = probe_script([str(tmp_path / "train.py")], tmp_path, seconds=1, timeout=1, remedy="; allow more")
    assert found == Failure("it took more than 1 s; allow more")
