"""A training by a command, of any tree and environment, that takes turns in its own process."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from strobe.duel import turning
from strobe.duel.paired_trial import TakesTurns
from strobe.duel.program import Program, program_of
from strobe.measure.timing import Block
from strobe.process.fork import MEMORY, Failure, FreshProcess, last_said, print_into

OUTPUT = "output.txt"
TIMEOUT = 600.0  # seconds, until a training is warm
STOPPED = 10.0  # seconds within which a training that has answered must be stopped


class Foreign(TakesTurns):
    """A program that trains, by Lightning or in a loop over ``strobe.watch``, and takes turns.

    It knows nothing of this tree: :mod:`strobe.duel.turning` is run by its path, and speaks for it. It ends when this
    process ends, in any way.

    Args:
        command: such as ``python train.py --lr 0.1``; see :func:`strobe.duel.program.program_of`.
        folder: for ``output.txt``, with its output, and for what Lightning writes.
        variables: the whole environment.
        timeout: as of :class:`TakesTurns`.
        place: the folder in which it runs; the present one by default.

    Attributes:
        sized: whether its batches show how many samples they hold; without that ``Block.images`` counts steps.
        in_steps: whether it does so anyway, because those of the other side do not show it.
        sources: the files of the program's own modules, after ``start``.

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
        super().__init__(timeout)
        self._folder, self._place = folder, place or Path.cwd()
        self._program = program_of(command, variables, self._place)
        self.sized, self.in_steps = True, False
        self.sources: list[Path] = []
        self._steps, self._images = 0, 0
        self._phases: dict[str, float] = {}

    def start(self) -> Block | Failure:
        """Train until it is warm."""
        self._folder.mkdir(parents=True, exist_ok=True)
        given = self._program, str(self._place), str(self._folder.absolute())
        self._process = FreshProcess(_become, *given, guarded=True)
        started = self._answer(self._process, self.timeout)
        self._steps, self._images, self._phases = 0, 0, {}
        return started

    @property
    def step_phases(self) -> dict[str, float]:
        """Mean seconds of each phase of a step in the turns so far; empty where they are not known."""
        return {name: seconds / self._steps for name, seconds in self._phases.items()}

    @property
    def step_images(self) -> float | None:
        """Samples of a step on average; None where the batches do not show it."""
        return self._images / self._steps if self.sized and self._steps else None

    def _answer(self, process: FreshProcess, timeout: float) -> Block | Failure:
        found = process.receive(timeout)
        if isinstance(found, Failure | str):
            self.close()
            failure = found if isinstance(found, Failure) else Failure(found, MEMORY.search(found) is not None)
            reason = failure.reason
            if (said := last_said(self._folder / OUTPUT)) and said not in reason:
                reason = f"{reason}; it said last: {said}"
            return Failure(reason, failure.memory)
        deadline = time.monotonic() + STOPPED
        while _state(process.pid) not in "TZX" and time.monotonic() < deadline:
            time.sleep(0.001)  # otherwise it might stop itself after being told to continue
        process.pause()  # its children in other process groups too
        self.sized = found["images"] is not None
        images = found["images"] if self.sized and not self.in_steps else found["steps"]
        self._steps, self._images = self._steps + found["steps"], self._images + (found["images"] or 0)
        for name, seconds in (found["phases"] or {}).items():
            self._phases[name] = self._phases.get(name, 0.0) + seconds
        self.sources = self.sources or [Path(path) for path in found.get("sources", ())]
        return Block(images, found["seconds"], found["steps"])


def _state(pid: int) -> str:
    """The kernel's letter for a process's state; X if it has gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"


def _become(pipe: Connection, program: Program, place: str, folder: str) -> None:
    """In the new process: become the program's interpreter, with the pipe."""
    print_into(Path(folder, OUTPUT))
    os.chdir(place)
    os.set_inheritable(pipe.fileno(), True)
    driver = [*program.interpreter, turning.__file__, str(pipe.fileno()), folder]
    os.execve(driver[0], [*driver, *program.words], program.variables)
