"""One trial of a cell, in a process of its own."""

import contextlib
import math
import statistics
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from strobe.app.build import PRELOAD
from strobe.bench.harness.declare import Cell, Done, Trial, Work
from strobe.errors import StrobeError
from strobe.measure.pagecache import COLD, bring, require_cold, resident
from strobe.measure.timing import repeated
from strobe.process.fork import Failure, in_fresh_process, print_into
from strobe.records.places import OUTPUT

LEAST = 0.01  # seconds that the clock is asked about; quicker repetitions are timed together
MOST = 200  # timed pieces of a trial


@dataclass(frozen=True)
class Report:
    """The result of a trial: for each timed piece, the seconds and images of one repetition."""

    seconds: list[float]
    images: list[float]
    resident: float | None = None  # share of the files' pages in the page cache when timing began
    figures: dict[str, float] = field(default_factory=dict)  # medians of what else the repetitions measured
    repetitions: int = 1  # in all


def run_trial(cell: Cell, trial: Trial, *, turn: float, timeout: float) -> Report | Failure:
    """Measure a cell in a process of its own; leaves no process behind, even after Ctrl-C."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    try:
        outcome = in_fresh_process(attend, cell, trial, turn, timeout=timeout, preload=[PRELOAD])
    finally:  # remove what is empty of what it has left
        log = trial.folder / OUTPUT
        if log.is_file() and not log.stat().st_size:
            log.unlink()
        with contextlib.suppress(OSError):
            trial.folder.rmdir()
    assert isinstance(outcome, Report | Failure)
    return outcome


def attend(pipe: Connection, cell: Cell, trial: Trial, turn: float) -> None:
    """The body of a cell's process: measures, and sends a Report or a Failure; its output goes to a file."""
    print_into(trial.folder / OUTPUT)
    outcome: Report | Failure
    try:
        import torch

        torch.set_num_threads(cell.threads)
        with cell.make(trial) as work:
            outcome = measure(cell, work, turn)
    except StrobeError as error:
        outcome = Failure(" ".join(str(error).split()))
    except Exception as error:
        traceback.print_exc()
        outcome = Failure(f"{type(error).__name__}: {' '.join(str(error).split())}")
    pipe.send(outcome)


def measure(cell: Cell, work: Work, turn: float) -> Report:
    """Warm up, then repeat for ``turn`` seconds, at least once."""
    if work.warm_up or not work.once:
        (work.warm_up or work.repeat)()
    pieces, share = list[Done](), None
    together = 1
    began = time.perf_counter()
    while not pieces or (not work.once and len(pieces) < MOST and time.perf_counter() - began < turn):
        if cell.cache and (cell.cache == COLD or not pieces):
            bring(work.files, cell.cache)
        if cell.cache and not pieces:
            if cell.cache == COLD:
                require_cold(work.files)
            share = resident(work.files)
        done, itself = _timed(work, together)
        pieces.append(done)
        if len(pieces) == 1 and cell.cache != COLD and not itself:
            together = max(1, math.ceil(LEAST / max(done.seconds or 0.0, 1e-7)))
    if together > 1 and len(pieces) > 1:
        pieces = pieces[1:]  # the first was too short for the clock
    figures = {name: statistics.median(done.figures[name] for done in pieces) for name in pieces[-1].figures}
    images: list[float] = [done.images for done in pieces]
    return Report([done.seconds or 0.0 for done in pieces], images, share, figures, together * len(pieces))


def _timed(work: Work, together: int) -> tuple[Done, bool]:
    """Time so many repetitions together: seconds and images of one, and whether it timed itself."""
    done = Done(0)

    def once() -> int:
        nonlocal done
        made = work.repeat()
        done = Done(made) if isinstance(made, int) else made
        return done.images

    block = repeated(once, multiple=together)
    if done.seconds is not None:
        return done, True
    return Done(done.images, block.seconds / together, done.figures), False
