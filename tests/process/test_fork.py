"""Fresh processes: nothing of them is left, however they and those who want them end."""

import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import psutil
import pytest

from strobe.process import fork as processes
from strobe.process.fork import FreshProcess, children, last_said, members
from support import standing
from support.processes import living, wait_for
from support.standing import SLEEP, start_a_group


class Interrupting:
    """Ctrl-C comes while this is sent to the new process."""

    def __reduce__(self) -> Any:
        signal.raise_signal(signal.SIGINT)
        return Interrupting, ()


def test_a_group_of_its_own_pauses_and_is_ended_too() -> None:
    with FreshProcess(start_a_group) as process:
        child = process.receive(60)
        both = [psutil.Process(process.pid), psutil.Process(child)]
        process.pause()
        wait_for(lambda: all(each.status() == psutil.STATUS_STOPPED for each in both))
        process.resume()
        wait_for(lambda: all(each.status() == psutil.STATUS_SLEEPING for each in both))
        assert living({child})
    assert not living({child})


def test_the_guard_ends_what_is_no_session_yet() -> None:
    ours, theirs = Pipe()
    with subprocess.Popen(SLEEP) as late:  # of this process's session
        ours.send(late.pid)
        ours.close()  # as when its parent dies
        processes._guard(theirs)
        assert late.wait(30) == -signal.SIGKILL


def test_an_interrupted_start_leaves_nothing() -> None:
    with FreshProcess(start_a_group):  # the server is there
        server = psutil.Process(os.getpid())
        before = {child.pid for child in server.children(recursive=True)}
    with pytest.raises(KeyboardInterrupt):
        FreshProcess(start_a_group, Interrupting(), guarded=True)
    left = {child.pid for child in server.children(recursive=True)} - before
    assert not living(left)


def test_a_program_that_takes_its_place_has_input_which_is_empty(tmp_path: Path) -> None:
    with FreshProcess(standing.become_a_reader, tmp_path / "output.txt") as process:
        process.receive(60)
    assert last_said(tmp_path / "output.txt") == "''"


def test_of_a_long_line_the_beginning_is_told(tmp_path: Path) -> None:
    (tmp_path / "output.txt").write_text("x" * 10_000)
    assert last_said(tmp_path / "output.txt") == "x" * processes.TOLD


def test_it_ends_with_the_command_also_while_it_stands_still() -> None:
    with subprocess.Popen(
        [sys.executable, standing.__file__], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as command:
        assert command.stdout is not None
        session = int(command.stdout.readline())
        wait_for(lambda: [psutil.Process(pid).status() for pid in members(session)] == [psutil.STATUS_STOPPED] * 2)
        os.killpg(command.pid, signal.SIGKILL)  # the server of processes too
    wait_for(lambda: not members(session) and not members(command.pid))


def test_what_a_process_has_started_is_known_while_it_lives() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert process.pid in children(os.getpid())
        assert not children(process.pid)
        process.kill()
        process.wait()
        assert process.pid not in children(os.getpid())
