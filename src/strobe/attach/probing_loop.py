"""In the process of a script that is probed: a stretch of a loop without a Trainer is recorded; how it ends."""

import gc
import os
import sys
import time
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

from strobe.attach.place import stop
from strobe.attach.record import complete
from strobe.attach.settings import loaders_of
from strobe.measure import contention
from strobe.measure.timing import WARMUP_STEPS
from strobe.present.format import duration
from strobe.probe.asked import LOADER, MODEL, STAGES, STEPS, Asked
from strobe.probe.ceilings import ENOUGH, in_one_line, sum_up, waits_for_data
from strobe.probe.loader import staying
from strobe.probe.sides import Sides

if TYPE_CHECKING:
    from strobe.attach.training import Training

STRETCH, PATIENCE = 12, 4  # steps that count, unless they take so many times as long as asked
NO_TRAINER = "model: without a Trainer it cannot be measured alone"


def leave(pipe: Connection | None, reason: str | None = None) -> NoReturn:
    """Answer, and end this process here: nothing of the script runs any more, not its ``finally``, nor at its exit.

    A rank without the pipe ends with an error where there is a reason; rank 0 hears of it, or ends with it.
    """
    try:
        for one in gc.get_objects():
            if type(one) is TemporaryDirectory:
                with suppress(Exception):
                    one.cleanup()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the script may have closed or replaced it
                stream.flush()
        if pipe is not None:
            pipe.send({"reason": reason})
        elif reason:
            os.write(2, f"{reason}\n".encode())
    finally:
        os._exit(int(pipe is None and reason is not None))


class LoopProbe:
    """Called after each step of a loop: once enough of them are recorded, measures its loader and ends the process."""

    def __init__(self, asked: Asked) -> None:
        self._asked, self._since = asked, 0.0

    def __call__(self, training: "Training") -> None:
        """End the stretch here, or let the script go on."""
        seconds, each = self._asked.seconds, time.perf_counter() - self._since
        if training.step == WARMUP_STEPS + 1:  # it goes on
            self._say(STEPS, seconds)
        elif training.step == 2 and ENOUGH * each > PATIENCE * seconds:
            self._say(STEPS, ENOUGH * each, f", whose steps take {duration(each)}")
        if not self._since or training.step == WARMUP_STEPS:
            self._since = time.perf_counter()
        passed = time.perf_counter() - self._since
        enough = WARMUP_STEPS + STRETCH if passed < PATIENCE * seconds else ENOUGH
        if STEPS not in self._asked.sides or (passed >= seconds and training.step >= enough):
            self.end(training)

    def end(self, training: "Training") -> NoReturn:
        """End the process with what is known of a training, which may have ended by itself."""
        try:
            self._measure(training)
        except Exception as error:
            leave(self._pipe(), f"its training could not be measured: {in_one_line(error)}")

    def _measure(self, training: "Training") -> NoReturn:
        """Complete the record, with the loader alone; nobody trains meanwhile, nor any more."""
        asked = self._asked
        sides = Sides(asked.seconds, say=lambda side: self._say(side, asked.seconds))
        if MODEL in asked.sides:
            sides.failures.append(NO_TRAINER)
        summary = training.finish()
        stop()  # the loop below is over a DataLoader, too
        assert summary is not None
        summary["script"] = asked.line
        began, before = time.perf_counter(), contention.read()
        if training.loops.several:
            sides.failures.append(f"{LOADER}: batches come from several DataLoaders")
        elif LOADER in asked.sides:
            self._load(sides, training, summary)
        sum_up(sides.ceilings, summary, sides.failures, began=began, before=before)
        machine, log = training.machine.both(), training.log
        complete(summary, training.config, training.place, machine=machine, steps=log, page=True, told=False)
        nothing = STEPS not in asked.sides and sides.ceilings[LOADER] is None
        leave(self._pipe(), (sides.ceilings["reason"] or NO_TRAINER) if nothing else None)

    def _load(self, sides: Sides, training: "Training", summary: dict[str, Any]) -> None:
        loader, device = training.loader(), training.device
        if not (loaders := loaders_of(loader)):
            return
        with staying(loaders):
            loading = sides.attempt(LOADER, lambda: sides.loader(loader, device))
        if loading is not None:
            sides.enter_loading(loading, device, ranks=1, workers=sum(one.num_workers for one in loaders))
            sides.ceilings["loading"] = sides.parts(loader) if waits_for_data(summary) else None

    def _say(self, side: str, seconds: float, more: str = "") -> None:
        if (pipe := self._pipe()) is not None:
            pipe.send((STAGES[side] + more, seconds))

    def _pipe(self) -> Connection | None:
        return _pipe(self._asked.pipe) if os.getpid() == self._asked.process else None


@cache
def _pipe(number: int) -> Connection:
    return Connection(number)  # which closes it where nobody keeps it
