"""A training that takes turns, in its own process.

Machines drift: what trains at 1000 images/s now may train at 700 in a minute. So two trainings are compared by short
turns, one after the other, of two that are both there all the time. Between its turns a training's whole session is
stopped (SIGSTOP): its loader processes and threads make no batches in advance and leave the other all cores.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from strobe.measure.timing import Block
from strobe.process.fork import MEMORY, Failure, FreshProcess

STOPPED = 10.0  # seconds within which a training that has answered must be stopped


class TakesTurns:
    """A training in its own process, paused except in its turns; a context manager.

    It ends when this process ends, in any way.

    Args:
        folder: for what it writes; it is made if there is none.
        body: trains, and lets :class:`strobe.duel.turning.Turns` answer on the pipe that is its first argument.
        timeout: seconds allowed until it is warm, and in a turn beyond its own.

    Attributes:
        sized: whether its batches show how many samples they hold; without that ``Block.images`` counts steps.
        in_steps: whether it does so anyway, because those of the other side do not show it.
        sources: the files of the program's own modules, after ``start``.
    """

    def __init__(
        self, folder: Path, body: Callable[..., None], *arguments: Any, timeout: float, preload: Sequence[str] = ()
    ) -> None:
        self.timeout = timeout
        self.sized, self.in_steps = True, False
        self.sources: list[Path] = []
        self._folder, self._body, self._arguments, self._preload = folder, body, arguments, preload
        self._process: FreshProcess | None = None
        self._steps, self._images = 0, 0
        self._phases: dict[str, float] = {}

    @property
    def session(self) -> int | None:
        """The number of its processes' session; None before it is started, and when it has ended."""
        return None if self._process is None else self._process.pid

    @property
    def step_phases(self) -> dict[str, float]:
        """Mean seconds of each phase of a step in the turns so far; empty where they are not known."""
        return {name: seconds / self._steps for name, seconds in self._phases.items()}

    @property
    def step_images(self) -> float | None:
        """Samples of a step on average; None where the batches do not show it."""
        return self._images / self._steps if self.sized and self._steps else None

    def start(self) -> Block | Failure:
        """Train until it is warm, and stand still."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._process = FreshProcess(self._body, *self._arguments, preload=self._preload, guarded=True)
        started = self._answer(self._process, self.timeout)
        self._steps, self._images, self._phases = 0, 0, {}
        return started

    def turn(self, seconds: float) -> Block | Failure:
        """Train for so many seconds, at least two timed steps, in a multiple of the workers."""
        if self._process is None:
            return Failure("its training has ended")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended; the answer says how
            self._process.pipe.send(seconds)
        self._process.resume()
        return self._answer(self._process, self.timeout + seconds)

    def close(self) -> None:
        """End it, with everything it has started. A second call does nothing."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, process: FreshProcess, timeout: float) -> Block | Failure:
        """The result of the turn, after which the process is paused."""
        answer = process.receive(timeout)
        if isinstance(answer, Failure | str):
            self.close()
            return answer if isinstance(answer, Failure) else Failure(answer, MEMORY.search(answer) is not None)
        deadline = time.monotonic() + STOPPED
        while _state(process.pid) not in "TZX" and time.monotonic() < deadline:
            time.sleep(0.001)  # otherwise it might stop itself after being told to continue
        process.pause()  # its children in other process groups too
        self.sized = answer["images"] is not None
        images = answer["images"] if self.sized and not self.in_steps else answer["steps"]
        self._steps, self._images = self._steps + answer["steps"], self._images + (answer["images"] or 0)
        for name, seconds in (answer["phases"] or {}).items():
            self._phases[name] = self._phases.get(name, 0.0) + seconds
        self.sources = self.sources or [Path(path) for path in answer.get("sources", ())]
        return Block(images, answer["seconds"], answer["steps"])


def _state(pid: int) -> str:
    """The kernel's letter for a process's state; X if it has gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"
