"""A configuration that trains when it is told to, in a process of its own that stands still in between.

Machines drift: what trains at 1000 images/s now may train at 700 in a minute. So two configurations are compared by
short turns, one after the other, of trainings that are both there all the time. Between its turns a training's whole
session is stopped (SIGSTOP): its loader processes and threads make no batches in advance and leave the other all cores.
"""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from hydra.errors import HydraException

from strobe.app.build import PRELOAD
from strobe.duel.paired_trial import TakesTurns
from strobe.errors import StrobeError
from strobe.measure.timing import Block
from strobe.process.fork import MEMORY, Failure, FreshProcess, members, memory_of, print_into

OUTPUT = "output.txt"


@dataclass(frozen=True)
class Ready:
    """A training that is warm and stands still.

    Attributes:
        step_seconds: of the last step of its warm-up.
        images: of that step.
    """

    step_seconds: float
    images: int


class Trainee(TakesTurns):
    """One configuration that takes turns.

    It is the application's own training with all its callbacks and its logger, without an end, validation,
    checkpoints, schedule and profiler. When this process ends in whatever way, it ends too.

    Args:
        overrides: of ``train.py``.
        folder: where callbacks write, and ``output.txt`` holds what is printed.
        timeout: as of :class:`TakesTurns`.

    Attributes:
        memory: bytes, after each answer: ``rss_peak_bytes``, the most that the training process held, with what its
            loader processes hold now and do not share; ``device_peak_bytes``, on its GPU, None without one.
    """

    def __init__(self, overrides: Sequence[str], folder: Path, *, timeout: float) -> None:
        super().__init__(timeout)
        self.overrides = tuple(overrides)
        self.folder = folder
        self.memory: dict[str, int | None] = {"rss_peak_bytes": None, "device_peak_bytes": None}

    def start(self) -> Ready | Failure:
        """Build it, and train until it is warm: as many steps as no run counts, and what workers had ready at first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = FreshProcess(_train, self.overrides, self.folder, preload=[PRELOAD], guarded=True)
        found = self._answer(self._process, self.timeout)
        return found if isinstance(found, Failure) else Ready(found.seconds / found.steps, found.images)

    def _answer(self, process: FreshProcess, timeout: float) -> Block | Failure:
        found = process.receive(timeout)
        if isinstance(found, Failure):
            self.close()
            return found
        process.pause()
        turn: Block
        turn, peaks = found
        loading = sum(memory_of(pid) for pid in members(process.pid) if pid != process.pid)
        self.memory = peaks | {"rss_peak_bytes": peaks["rss_peak_bytes"] + loading}
        return turn


def _train(pipe: Connection, overrides: Sequence[str], folder: Path) -> None:
    """The body of the process: train for ever, and answer; or send a Failure."""
    print_into(folder / OUTPUT)
    try:
        from strobe.app.tuning.turns import train

        train(pipe, overrides, folder)
        failure = Failure("training ended by itself; leave out what ends it, such as a callback")
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        failure = failure_of(error)
    pipe.send(failure)


def failure_of(error: BaseException) -> Failure:
    """What is told of the error that ended a training: a user's mistake in its own words, others with their type."""
    from strobe.app.run.train import explained

    known = explained(error) if isinstance(error, Exception) else error
    text = " ".join(str(known).split())
    if isinstance(known, HydraException | StrobeError):
        text = text.partition(" Config search path:")[0]
    else:
        text = f"{type(known).__name__}: {text}".removesuffix(": ")
    return Failure(text, memory=MEMORY.search(text) is not None)
