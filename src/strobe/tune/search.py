"""The search: go to the best combination of what was measured alone, leave out what it does not need, and prove it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strobe.diagnose.predict import NOTABLE, step_of
from strobe.overrides import applied
from strobe.present.terminal import ProgressDisplay
from strobe.records.run import Alternative, Figure, Record, load_record
from strobe.tune.comparing import Comparing
from strobe.tune.composing import Changes
from strobe.tune.proposals import Proposal, advice, proposals
from strobe.tune.record import NOTHING, Tuning
from strobe.tune.table import of_probe, of_trial

BUDGET, ENOUGH = "the time is up", "a search tries ten changes at most"
SHORT = "the budget left too little time for more"  # than a share of it, in which sides are measured alone
SLACK = 0.8  # of what an action took before, that must be left for the next one
PROPOSALS = 10  # trials of a search, that share the false alarms that it may have
PROOF = 1.5  # times as long as a usual trial it takes
# Of the budget, that measuring each side alone has taken when no more of it is begun: where training hardly waits for
# its loader, where it waits, and where it waits for much of the time.
COMPUTING = {"model": 0.4, "loader": 0.1}
ALONE = {"model": 0.2, "loader": 0.2}
WAITING, MUCH = {"model": 0.15, "loader": 0.3}, 0.3


@dataclass
class Search:
    """Goes on with a search until nothing helps, or the budget of measuring is spent.

    It begins at the beginning each time, and takes what was measured before from the record.
    """

    tuning: Tuning
    machine: Comparing
    display: ProgressDisplay
    clock: Callable[[], float] = time.perf_counter
    _since: float = field(default=0.0, init=False)
    _before: int = field(default=0, init=False)  # trainings of earlier sessions
    _pruned: list[list[str]] = field(default_factory=list, init=False)  # changes that were left out once
    _heard: int = field(default=0, init=False)  # how many of the sides that were measured have been asked for
    _short: bool = field(default=False, init=False)  # whether there was no time to measure a side alone

    def run(self) -> None:
        """Search; the record is saved after each measurement."""
        tuning = self.tuning
        self._since = self.clock() - tuning.seconds
        self._before, tuning.best = tuning.trainings, list(tuning.header["given"])
        try:
            while tuning.ended is None:
                record = self._probe()
                if record is None:
                    break
                tuning.advice = advice(record, tuning.header["over"])
                if not self._improve(record) and tuning.ended is None:
                    tuning.ended = BUDGET if self._left() <= 0 else SHORT if self._short else NOTHING
                self._prune()
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
        if tuning.probes and self._left() < SLACK * (tuning.usual_probe + self._reserved(1)):
            tuning.ended = BUDGET
            return None
        self.display.begins(f"probing {tuning.spelled(tuning.best) or tuning.as_it_is}", self._left())
        began = self.clock()
        record, directory = self.machine.probe(tuning.best)
        if record is None:
            tuning.ended = self.machine.failure or "the probe run failed"
        else:
            probe = {"overrides": list(tuning.best), "directory": directory, "seconds": self.clock() - began}
            tuning.probes.append(probe | {"alternatives": len(record.items("ceilings", "alternatives"))})
            self.display.say(of_probe(record))
        self._save()
        return record

    def _improve(self, record: Record) -> bool:
        """Try what is proposed until something is kept, and then its rivals; whether something was."""
        tuning, base = self.tuning, list(self.tuning.best)
        first: Figure | None = None  # what was predicted of what is kept
        step = step_of(record)
        waiting = NOTABLE if step is None else step.waiting
        most = COMPUTING if waiting < NOTABLE else ALONE if waiting < MUCH else WAITING
        offers = proposals(
            record,
            tuning.header["over"],
            budget=tuning.header["budget"],
            measure=lambda side, changes: self._alone(base, side, changes, most),
        )
        for offer in offers:
            proposal = replace(offer, predicted=_over(offer.predicted, first)) if first and offer.predicted else offer
            if tuning.best != base and not proposal.rival:
                break
            before, after = tuning.best, applied(base, proposal.overrides)
            if sorted(before) == sorted(after) or sorted(base) == sorted(after):
                continue
            trial = tuning.tried(before, after)
            if trial is None:
                if tuning.is_settled(proposal):
                    continue
                if sum(not one.get("left_out") for one in tuning.trials) >= PROPOSALS:
                    tuning.ended = ENOUGH
                    break
                if self._left() < SLACK * self._reserved(1):  # so that time for the proof is left
                    tuning.ended = BUDGET
                    break
                trial = self._try(proposal, before, after, among=PROPOSALS)
            if trial["kept"]:
                tuning.best, first = after, proposal.predicted
        return tuning.best != base

    def _alone(self, base: list[str], side: str, changes: Changes, shares: Mapping[str, float]) -> Alternative | None:
        """One side with changes, as measured; only from the given configuration, and for a share of the budget."""
        tuning, request = self.tuning, {"of": base, "side": side, "overrides": list(changes)}
        earlier, place = tuning.sides[: self._heard], self._heard
        most = shares[side] * tuning.header["budget"]
        spent = sum(float(one["seconds"]) for one in earlier if one["side"] == side)
        if [{key: one[key] for key in request} for one in tuning.sides[place : place + 1]] != [request]:
            if base != tuning.header["given"]:
                return None
            if spent > most or self._left() < most:
                self._short = True
                return None
            self.display.begins(f"the {side} alone{': ' if changes else ''}{tuning.spelled(changes)}", self._left())
            began = self.clock()
            outcome = self.machine.alone(base, side, changes) or {"rate": None}
            tuning.sides = [*earlier, outcome | request | {"seconds": self.clock() - began}]
            self._save()
        self._heard += 1
        entry = tuning.sides[place] | {"overrides": list(changes) or ["as given"]}
        return next(iter(Record({"ceilings": {"alternatives": [entry]}}).alternatives(side)), None)

    def _try(
        self, proposal: Proposal, before: list[str], after: list[str], *, among: int = 1, **kind: bool
    ) -> dict[str, Any]:
        change = self.tuning.spelled(proposal.overrides)
        self.display.stage(f"Trying {'without ' if kind else ''}{change}", self._left())
        began = self.clock()
        outcome = self.machine.compare(before, after, among=among)
        trial = self.tuning.add(proposal, before, after, outcome, self.clock() - began, **kind)
        self._save()
        self.display.say(of_trial(self.tuning, trial))
        return trial

    def _prune(self) -> None:
        """Leave out each change of several once, and for good if training is as fast without it."""
        tuning = self.tuning
        for part in self._unpruned():
            if tuning.parts == [part]:
                break  # which is what the proof is about
            before = tuning.without(part)
            trial = tuning.tried(before, tuning.best)
            if trial is None:
                if self._left() < SLACK * (1 + PROOF) * tuning.usual_trial:
                    break
                proposal = Proposal(tuple(part), "is it still needed?", None)
                trial = self._try(proposal, before, tuning.best, left_out=True)
            self._pruned.append(part)
            if not trial["kept"]:
                tuning.best = before

    def _unpruned(self) -> list[list[str]]:
        """The changes that were not left out yet; none if there is one change only."""
        parts = self.tuning.parts
        return [part for part in parts if part not in self._pruned] if len(parts) > 1 else []

    def _prove(self) -> None:
        """Compare the best with what was given, anew: each change was kept for its ratio, which flatters it.

        If nothing was kept, the trial that came nearest is worth the proof's time: it has no others to share with.
        """
        tuning = self.tuning
        near = None if tuning.changes else tuning.most_promising
        if near is not None:
            tuning.best = near["after"]
        if tuning.changes and tuning.proof is None:
            self.display.stage("Comparing what was found with what you gave", self._left())
            outcome = self.machine.compare(tuning.header["given"], tuning.best, proof=True)
            tuning.proof = {"ratio": outcome.ratio, "verdict": outcome.verdict, "error": outcome.error}
            tuning.proof |= {"losses": outcome.losses} if outcome.losses else {}
            if near is not None:
                near["kept"] = outcome.verdict == "faster"

    def _reserved(self, trials: int) -> float:
        """Seconds that so many trials take, leaving each change out once, and the proof."""
        return (trials + len(self._unpruned()) + PROOF) * self.tuning.usual_trial

    def _left(self) -> float:
        return float(self.tuning.header["budget"]) - (self.clock() - self._since)

    def _save(self) -> None:
        self.tuning.seconds = self.clock() - self._since
        self.tuning.trainings = self._before + self.machine.trainings
        self.tuning.save()


def _over(one: Figure, other: Figure) -> Figure:
    """The speed-up of one estimate over another."""
    return Figure(one.median / other.median, one.low / other.high, one.high / other.low)
