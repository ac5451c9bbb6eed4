"""Fresh processes: nothing of them is left, however they and those who want them end."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import psutil
import pytest

from strobe.process import fork as processes
from strobe.process.fork import FreshProcess

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


def start_a_group(pipe: Connection) -> None:
    """Start a process with a group of its own in this session."""
    pipe.send(subprocess.Popen(SLEEP, process_group=0).pid)
    time.sleep(60)


class Interrupting:
    """Ctrl-C comes while this is sent to the new process."""

    def __reduce__(self) -> Any:
        signal.raise_signal(signal.SIGINT)
        return Interrupting, ()


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_group_of_its_own_is_ended_too() -> None:
    with FreshProcess(start_a_group) as process:
        child = process.receive(60)
        assert alive(child)
    assert not alive(child)


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
    assert not {pid for pid in left if alive(pid)}
