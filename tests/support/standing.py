"""A command that starts a guarded process, which starts another one, lets both stand still, and waits to be ended."""

import os
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from strobe.process.fork import FreshProcess, print_into

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


def start_a_group(pipe: Connection) -> None:
    """Start a process with a group of its own in this session."""
    pipe.send(subprocess.Popen(SLEEP, process_group=0).pid)
    time.sleep(60)


def start_another(pipe: Connection) -> None:
    """Start a process in this session and group."""
    pipe.send(subprocess.Popen(SLEEP).pid)
    time.sleep(60)


def become_a_reader(_: Connection, output: Path) -> None:
    """Become a program that prints its input into a file."""
    print_into(output)
    os.execv(sys.executable, [sys.executable, "-S", "-c", "import sys; print(repr(sys.stdin.read()))"])


def main() -> None:
    """Say the session, and wait."""
    with FreshProcess(start_another, guarded=True) as process:
        process.receive(60)
        process.pause()
        print(process.pid, flush=True)
        time.sleep(60)


if __name__ == "__main__":
    main()
