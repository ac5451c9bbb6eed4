"""A training by a script from any tree and environment that takes turns, in its own process."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from strobe.duel import turning
from strobe.duel.paired_trial import TakesTurns
from strobe.measure.timing import Block
from strobe.process.fork import Failure, FreshProcess, last_said, print_into

OUTPUT = "output.txt"
STOPPED = 10.0  # seconds within which a training that has answered must be stopped


class Foreign(TakesTurns):
    """A script whose Lightning training takes turns.

    It knows nothing of this tree: :mod:`strobe.duel.turning` is run by its path, and speaks for it. It ends when this
    process ends, in any way.

    Args:
        command: the interpreter, the script, and its arguments.
        folder: for ``output.txt``, with its output.
        variables: the whole environment.
        timeout: as of :class:`TakesTurns`.
    """

    def __init__(self, command: Sequence[str], folder: Path, *, variables: Mapping[str, str], timeout: float) -> None:
        super().__init__(timeout)
        self._command, self._folder, self._variables = command, folder, variables

    def start(self) -> Block | Failure:
        """Train until it is warm."""
        self._folder.mkdir(parents=True, exist_ok=True)
        interpreter, *script = self._command
        words = [interpreter, turning.__file__], script, dict(self._variables), str(self._folder / OUTPUT)
        self._process = FreshProcess(_become, *words, guarded=True)
        return self._answer(self._process, self.timeout)

    def _answer(self, process: FreshProcess, timeout: float) -> Block | Failure:
        found = process.receive(timeout)
        if isinstance(found, Failure):
            self.close()
            said = last_said(self._folder / OUTPUT)
            return Failure(said or found.reason, found.memory)
        deadline = time.monotonic() + STOPPED
        while _state(process.pid) not in "TZX" and time.monotonic() < deadline:
            time.sleep(0.001)  # otherwise it might stop itself after being told to continue
        process.pause()  # its children in other process groups too
        return Block(*found)


def _state(pid: int) -> str:
    """The kernel's letter for a process's state; X if it has gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"


def _become(pipe: Connection, driver: list[str], script: list[str], variables: dict[str, str], output: str) -> None:
    """In the new process: become the script's interpreter, with the pipe."""
    print_into(Path(output))
    os.set_inheritable(pipe.fileno(), True)
    os.execve(driver[0], [*driver, str(pipe.fileno()), *script], variables)
