"""Runs a script in a process of its own, where its training is taken over and measured; see docs/proof.md."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from strobe.callbacks.columns import LOOKS_FOLDER
from strobe.diagnose.predict import step_of
from strobe.diagnose.rank import conclude
from strobe.measure.timing import Rate
from strobe.probe import driver
from strobe.probe.asked import ASKED, SIDES, Asked
from strobe.probe.ceilings import ENOUGH
from strobe.probe.changes import WANTED
from strobe.process.fork import Failure, FreshProcess, last_lines, last_said, print_into
from strobe.process.signals import what_ended
from strobe.records.files import BEGUN, make_room, write_summary
from strobe.records.joining import recover
from strobe.records.places import OUTPUT
from strobe.records.run import Record, alternative_of
from strobe.report.page import write_report
from strobe.traces.rank import read_trace

MOST = 20  # lines of it that are shown


def probe_script(
    command: Sequence[str],
    folder: Path,
    *,
    seconds: float,
    timeout: float,
    changes: Sequence[str] = (),
    sides: Sequence[str] = SIDES,
    tell: Callable[[str, float], None] = lambda *_: None,
    remedy: str = "",
) -> Path | Failure:
    """Run a script until its first training would begin, measure, and end it there; from the working folder.

    Args:
        command: what follows ``python``.
        folder: gets the record and ``output.txt``.
        seconds: for each side, at most.
        timeout: seconds for all, with what the script does before it trains.
        changes: overrides that :mod:`strobe.probe.changes` makes in the script.
        tell: called with what is measured next, in words, and about how many seconds are left.
        remedy: what allows it more time, in words.

    Returns:
        The folder; a Failure if no side could be measured. What one side lacks is in the record's ``ceilings.reason``.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + timeout
    with TemporaryDirectory(prefix="strobe-") as scratch:
        asked = Asked(tuple(command), str(folder), scratch, seconds, tuple(sides))
        variables = {**os.environ, WANTED: json.dumps(list(changes))}
        words = str(Path.cwd()), asdict(asked), variables, str(folder / OUTPUT)
        with FreshProcess(_become, *words, guarded=True) as process:
            while not isinstance(reply := process.receive(max(0.0, until - time.monotonic())), Failure):
                if not isinstance(reply, tuple):
                    break
                tell(*reply)
    if isinstance(reply, Failure):
        late = time.monotonic() >= until
        return Failure(f"it took more than {timeout:.0f} s{remedy}" if late else why_not(reply, folder), reply.memory)
    if reply["reason"] is None and not (folder / "summary.json").is_file():
        return Failure(f"its record could not be written to {folder}; free some space, or give another folder by --out")
    return folder if reply["reason"] is None else Failure(reply["reason"])


def keep_until_now(folder: Path, interrupt: BaseException) -> bool:
    """Make the record and the report of what a script that is ended has measured; False where no step was."""
    for looks in folder.glob(f"{LOOKS_FOLDER}*"):  # of loader workers, which nobody has read
        shutil.rmtree(looks, ignore_errors=True)
    if (folder / "summary.json").is_file():
        return True
    make_room(folder)
    if not (folder / BEGUN).is_file() or step_of(record := recover(folder)) is None:
        return False
    error = {"type": type(interrupt).__name__, "message": what_ended(interrupt)}
    summary, read = {**record.summary, "status": "interrupted", "error": error}, cache(read_trace)
    conclude(summary, record.config, folder, read)
    write_summary(folder / "summary.json", summary)
    (folder / BEGUN).unlink()
    write_report(folder, Record(summary, record.config), read)
    return True


def alternative(summary: Mapping[str, Any], side: str, changes: Sequence[str]) -> dict[str, Any] | None:
    """An entry of ``ceilings.alternatives``, from the record of a script that was probed with these changes.

    None if that side was not measured.
    """
    ceilings = summary["ceilings"]
    if ceilings[side] is None:
        return None
    low, high = ceilings["intervals"][side]
    rate = Rate(ceilings[side], low, high, ceilings["cpu_seconds"].get(side))
    return alternative_of(changes, side, rate, summary["batch_size"])


def why_not(failure: Failure, folder: Path) -> str:
    """Why a script's process, whose record would be in this folder, ended without an answer."""
    if failure.reason.endswith("code 0 and left no result"):
        return f"the script ended too early: no Trainer's fit began, and no loop's optimizer made {ENOUGH} updates"
    line = last_said(folder / OUTPUT)
    return f"{failure.reason}; the last line of its output is: {line}" if line else failure.reason


def printed(folder: Path) -> list[str]:
    """The last lines that a script printed, to be shown where its folder is not kept; none if it was silent."""
    lines = last_lines(folder / OUTPUT)[-MOST:]
    return ["The script printed last:", *(f"  {line}" for line in lines)] if lines else []


def _become(pipe: Connection, folder: str, asked: dict[str, Any], variables: dict[str, str], output: str) -> None:
    """In the new process: become the script's interpreter, with the pipe."""
    os.chdir(folder)
    print_into(Path(output))
    os.set_inheritable(pipe.fileno(), True)
    here = {"pipe": pipe.fileno(), "process": os.getpid()}
    variables |= {ASKED: json.dumps(asked | here), "PYTHONDONTWRITEBYTECODE": "1"}
    os.execve(sys.executable, [sys.executable, driver.__file__, *asked["command"]], variables)
