"""The search: probe the best configuration so far, try what is proposed, keep what is really faster, probe again."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from strobe.app.tuning.proposals import Proposal, advice, proposals
from strobe.app.tuning.record import Outcome, Tuning
from strobe.app.tuning.table import of_probe, of_trial
from strobe.overrides import applied
from strobe.present.terminal import ProgressDisplay
from strobe.records.run import Record, load_record

NOTHING, BUDGET = "nothing else helps", "the budget is spent"
SLACK = 0.8  # of what an action took before, that must be left for the next one


class Machine(Protocol):
    """Measures.

    Attributes:
        failure: why the latest probe run found nothing.
        trainings: that were started.
    """

    failure: str | None
    trainings: int

    def probe(self, overrides: Sequence[str]) -> tuple[Record | None, str]:
        """The record of a run with these overrides, None if it failed; and its directory, below the search's."""

    def compare(self, before: Sequence[str], after: Sequence[str], *, proof: bool = False) -> Outcome:
        """How many times as fast ``after`` trains as ``before``; a ``proof`` takes all the time that it needs."""


@dataclass
class Search:
    """Goes on with a search until nothing helps, or the budget of measuring is spent."""

    tuning: Tuning
    machine: Machine
    display: ProgressDisplay
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
                record = self._probe()
                if record is None:
                    break
                tuning.advice = advice(record)
                if not self._improve(record) and tuning.ended is None:
                    tuning.ended = NOTHING
            self._prove()
        except KeyboardInterrupt:
            self._end("interrupted")
            raise
        self._end("completed" if tuning.probes else "failed")

    def _end(self, status: str) -> None:
        self.tuning.status = status
        self._save()

    def _probe(self) -> Record | None:
        """The record of the best configuration; the first probe run takes place whatever the budget is."""
        tuning = self.tuning
        if known := tuning.probed(tuning.best):
            return load_record(tuning.folder / known["directory"])
        if tuning.probes and self._left() < SLACK * (tuning.usual_probe + 2 * tuning.usual_trial):
            tuning.ended = BUDGET
            return None
        self.display.begins(f"probing {' '.join(tuning.best) or 'the defaults'}", self._left())
        began = self.clock()
        record, directory = self.machine.probe(tuning.best)
        if record is None:
            tuning.ended = self.machine.failure or "the probe run failed"
        else:
            found = {"overrides": list(tuning.best), "directory": directory, "seconds": self.clock() - began}
            tuning.probes.append(found | {"alternatives": len(record.items("ceilings", "alternatives"))})
            self.display.say(of_probe(record))
        self._save()
        return record

    def _improve(self, record: Record) -> bool:
        """Try what is proposed until something is kept; whether something was."""
        tuning = self.tuning
        for proposal in proposals(record, tuning.header["over"], budget=tuning.header["budget"]):
            before, after = tuning.best, applied(tuning.best, proposal.overrides)
            if sorted(before) == sorted(after) or tuning.is_settled(proposal, before, after):
                continue
            if self._left() < 2 * SLACK * tuning.usual_trial:  # so that time for the proof is left
                tuning.ended = BUDGET
                return False
            if self._try(proposal, before, after):
                return True
        return False

    def _try(self, proposal: Proposal, before: list[str], after: list[str]) -> bool:
        self.display.begins(f"trying {' '.join(proposal.overrides)}", self._left())
        began = self.clock()
        found = self.machine.compare(before, after)
        trial = self.tuning.add(proposal, before, after, found, self.clock() - began)
        self._save()
        self.display.say(of_trial(trial))
        return bool(trial["kept"])

    def _prove(self) -> None:
        """Compare the best with what was given, anew: each change was kept for its ratio, which flatters it."""
        tuning = self.tuning
        if tuning.kept and tuning.proof is None:
            self.display.begins("comparing what was found with what was given", self._left())
            found = self.machine.compare(tuning.header["given"], tuning.best, proof=True)
            tuning.proof = {"ratio": found.ratio, "verdict": found.verdict, "error": found.error}

    def _left(self) -> float:
        return float(self.tuning.header["budget"]) - (self.clock() - self._since)

    def _save(self) -> None:
        self.tuning.seconds = self.clock() - self._since
        self.tuning.trainings = self._before + self.machine.trainings
        self.tuning.save()
