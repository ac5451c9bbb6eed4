"""A training by a command, of any tree and environment, that takes turns in its own process."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from strobe.duel import turning
from strobe.duel.program import Program, program_of
from strobe.duel.training import TakesTurns
from strobe.measure.timing import Block
from strobe.process.fork import Failure, FreshProcess, last_said, print_into
from strobe.records.places import OUTPUT

TIMEOUT = 600.0  # seconds, until a training is warm


class Foreign(TakesTurns):
    """A program that trains, by Lightning or in a loop over ``strobe.watch``, and takes turns.

    It knows nothing of this tree: :mod:`strobe.duel.turning` is run by its path, and speaks for it.

    Args:
        command: such as ``python train.py --lr 0.1``; see :func:`strobe.duel.program.program_of`.
        folder: for ``output.txt``, with its output, and for what Lightning writes.
        variables: the whole environment.
        place: the folder in which it runs; the present one by default.

    Raises:
        ConfigError: the command runs no program of Python's.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        variables: Mapping[str, str],
        timeout: float,
        place: Path | None = None,
    ) -> None:
        place = place or Path.cwd()
        program = program_of(command, variables, place)
        super().__init__(folder, _become, program, str(place), str(folder.absolute()), timeout=timeout)

    def _answer(self, process: FreshProcess, timeout: float) -> Block | Failure:
        answer = super()._answer(process, timeout)
        if isinstance(answer, Failure) and (line := last_said(self._folder / OUTPUT)) and line not in answer.reason:
            return replace(answer, reason=f"{answer.reason}; it said last: {line}")
        return answer


def _become(pipe: Connection, program: Program, place: str, folder: str) -> None:
    """In the new process: become the program's interpreter, with the pipe."""
    print_into(Path(folder, OUTPUT))
    os.chdir(place)
    os.set_inheritable(pipe.fileno(), True)
    driver = [*program.interpreter, turning.__file__, str(pipe.fileno()), folder]
    os.execve(driver[0], [*driver, *program.words], program.variables)
