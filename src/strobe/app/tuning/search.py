"""The search: look at the best configuration so far, try what it promises, keep what is really faster, look again."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from strobe.app.tuning.proposals import Move, advice, moves
from strobe.app.tuning.record import Tuning
from strobe.measure.statistics import Interval
from strobe.overrides import applied
from strobe.records.run import Record, load_record

NOTHING, BUDGET = "nothing else helps", "the budget is spent"
SLACK = 0.8  # of what an action took before, that must be left for the next one


@dataclass(frozen=True)
class Outcome:
    """What a comparison found: a ratio of speeds and its verdict, or why there is none."""

    verdict: str  # faster | slower | no difference | failed | out of memory
    ratio: Interval | None = None
    error: str | None = None
    turns: dict[str, list[float]] | None = None  # images/s of the turns of either side


class Machine(Protocol):
    """Measures.

    Attributes:
        failure: why the latest look found nothing.
        trainings: that were started.
    """

    failure: str | None
    trainings: int

    def look(self, overrides: Sequence[str]) -> tuple[Record | None, str]:
        """The record of a run with these overrides, and the directory it lies in, below the search's; None: failed."""

    def compare(self, before: Sequence[str], after: Sequence[str], *, proof: bool = False) -> Outcome:
        """How many times as fast ``after`` trains as ``before``; a ``proof`` takes all the time that it needs."""


class Watcher(Protocol):
    """Is told how it goes."""

    def looks(self, overrides: Sequence[str], left: float) -> None:
        """A look begins."""

    def looked(self, record: Record | None) -> None:
        """It ended."""

    def tries(self, move: Move, left: float) -> None:
        """A trial begins."""

    def tried(self, trial: dict[str, Any]) -> None:
        """It ended."""

    def proves(self, left: float) -> None:
        """What was found is compared with what was given."""


@dataclass
class Search:
    """Goes on with a search until nothing helps, or the budget of measuring is spent."""

    tuning: Tuning
    machine: Machine
    watcher: Watcher
    clock: Callable[[], float] = time.perf_counter
    _since: float = field(default=0.0, init=False)
    _before: int = field(default=0, init=False)  # trainings of earlier sessions

    def run(self) -> None:
        """Search; the record is saved after each measurement."""
        tuning = self.tuning
        self._since = self.clock() - tuning.seconds
        self._before = tuning.trainings
        try:
            while tuning.ended is None:
                record = self._look()
                if record is None:
                    break
                tuning.advice = advice(record)
                if not self._improve(record) and tuning.ended is None:
                    tuning.ended = NOTHING
            self._prove()
        except KeyboardInterrupt:
            self._end("interrupted")
            raise
        self._end("completed" if tuning.looks else "failed")

    def _end(self, status: str) -> None:
        self.tuning.status = status
        self._save()

    def _look(self) -> Record | None:
        """The record of the best configuration, for which the budget is not asked the first time."""
        tuning = self.tuning
        known = tuning.looked(tuning.best)
        needed = SLACK * (tuning.usual_look + 2 * tuning.usual_trial)
        if known is None and tuning.looks and self._left() < needed:
            tuning.ended = BUDGET
            return None
        if known is not None:
            return load_record(tuning.folder / known["directory"])
        self.watcher.looks(tuning.best, self._left())
        began = self.clock()
        record, directory = self.machine.look(tuning.best)
        took = self.clock() - began
        if record is None:
            tuning.ended = self.machine.failure or "looking failed"
        else:
            alternatives = len(record.items("ceilings", "alternatives"))
            look = {"overrides": list(tuning.best), "directory": directory, "seconds": took}
            tuning.looks.append(look | {"alternatives": alternatives})
        self._save()
        self.watcher.looked(record)
        return record

    def _improve(self, record: Record) -> bool:
        """Try the record's moves until one is kept; whether one was."""
        tuning = self.tuning
        for move in moves(record, tuning.header["over"], budget=tuning.header["budget"]):
            before, after = tuning.best, applied(tuning.best, move.overrides)
            if sorted(before) == sorted(after) or tuning.tried(before, after) or tuning.hopeless(move):
                continue
            if self._left() < 2 * SLACK * tuning.usual_trial:  # so that a proof is left
                tuning.ended = BUDGET
                return False
            if self._try(move, before, after):
                return True
        return False

    def _try(self, move: Move, before: list[str], after: list[str]) -> bool:
        self.watcher.tries(move, self._left())
        began = self.clock()
        found = self.machine.compare(before, after)
        took = self.clock() - began
        trial = self.tuning.add(
            move,
            before,
            after,
            verdict=found.verdict,
            ratio=found.ratio,
            error=found.error,
            turns=found.turns,
            seconds=took,
        )
        self._save()
        self.watcher.tried(trial)
        return bool(trial["kept"])

    def _prove(self) -> None:
        """Compare the best with what was given, anew: what was kept was kept for its ratio, which flatters it."""
        tuning = self.tuning
        if tuning.kept and tuning.proof is None:
            self.watcher.proves(self._left())
            found = self.machine.compare(tuning.header["given"], tuning.best, proof=True)
            tuning.proof = {"ratio": found.ratio, "verdict": found.verdict, "error": found.error}

    def _left(self) -> float:
        return float(self.tuning.header["budget"]) - (self.clock() - self._since)

    def _save(self) -> None:
        self.tuning.seconds = self.clock() - self._since
        self.tuning.trainings = self._before + self.machine.trainings
        self.tuning.save()
