"""Trainings that take turns for a search; which of them stay ready for the next comparison."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from strobe.duel.paired_trial import Defeat, Duel, alone, duel
from strobe.duel.training import TakesTurns
from strobe.measure.statistics import FALSE_ALARM, unpaired
from strobe.process.fork import Failure
from strobe.records.run import Record
from strobe.tune.record import OUT_OF_MEMORY, Outcome

LEAST_SECONDS = 60.0  # for a training, however little of the budget is left


class Comparing:
    """The machine of a search; a context manager that leaves no process.

    A subclass knows the trainings. The better one of the latest comparison stays ready as a paused process, for the
    next one to be compared with. A comparison begins with ``turns`` of each side; one training may take ``timeout``
    seconds, and the budget is spent at ``deadline``, by ``time.monotonic()``.
    """

    def __init__(self, folder: Path, *, turns: int, turn_seconds: float, timeout: float, deadline: float) -> None:
        self.folder = folder  # of the search; what trainings in turns leave behind lies below it in ``turns``
        self.failure: str | None = None  # why the latest probe run found nothing
        self.trainings = 0  # that were started
        self._turns, self._turn_seconds = turns, turn_seconds
        self._longest, self._deadline = timeout, deadline
        self._ready: dict[tuple[str, ...], TakesTurns] = {}  # paused, by their overrides

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def probe(self, overrides: Sequence[str]) -> tuple[Record | None, str]:
        """The record of a short run with ceilings and findings, None if it failed; and its directory."""
        raise NotImplementedError

    def alone(self, overrides: Sequence[str], side: str, changes: Sequence[str]) -> dict[str, Any] | None:
        """One side with changes, as ``ceilings.alternatives`` has it; None if it cannot be measured."""
        raise NotImplementedError

    def _training(self, overrides: Sequence[str], folder: Path) -> TakesTurns:
        """One that is not started yet; ``folder`` is empty."""
        raise NotImplementedError

    def _check(self, before: TakesTurns, after: TakesTurns) -> Failure | None:
        """Why two trainings that are warm cannot be compared."""

    def compare(self, before: Sequence[str], after: Sequence[str], *, among: int = 1, proof: bool = False) -> Outcome:
        """How many times as fast ``after`` trains as ``before``, as one of so many trials that share false alarms.

        They train in turns; a candidate for which there is no memory beside the other is measured alone. A ``proof``
        takes all the time that it needs.
        """
        sides = tuple(before), tuple(after)
        self._release(() if proof else sides)
        stays: tuple[tuple[str, ...], ...] = sides[:1]
        try:
            ended = self._duel(*sides, proof=proof, among=among)
            if isinstance(ended, Defeat) and ended.side == "incumbent":
                return Outcome("failed", error=f"what it is compared with failed: {ended.reason}")
            if isinstance(ended, Failure) and ended.memory:
                return self._one_after_the_other(before, after)
            if isinstance(ended, Failure):
                return Outcome("failed", error=ended.reason)
            turns = {"before": ended.theirs, "after": ended.ours}
            outcome = Outcome(ended.ratio.verdict, ended.ratio.as_record(), turns=turns)
            stays = sides[1:] if outcome.verdict == "faster" or (among == 1 and outcome.is_needed) else sides[:1]
            return outcome
        finally:
            self._release(() if proof else stays)

    def _duel(self, before: tuple[str, ...], after: tuple[str, ...], *, proof: bool, among: int) -> Duel | Failure:
        """A duel with the standing training, which is begun anew once if it ends by itself."""
        for attempt in (1, 2):
            pair: list[TakesTurns] = []
            for overrides in (before, after):
                if isinstance(training := self._begun(overrides), Failure):
                    return Defeat(training.reason, training.memory, "incumbent" if overrides is before else "candidate")
                pair.append(training)
            if (failure := self._check(*pair)) is not None:
                return failure
            ended = duel(
                *pair,
                turns=self._turns,
                seconds=self._turn_seconds,
                early=not proof,
                alpha=FALSE_ALARM / among,
                deadline=None if proof else self._deadline,
                until=self._deadline,
            )
            if not isinstance(ended, Defeat) or ended.side == "candidate" or attempt == 2:
                break
        return ended

    def _one_after_the_other(self, before: Sequence[str], after: Sequence[str]) -> Outcome:
        """Rates of turns in a row: less certain, for a machine's speed drifts between them."""
        rates = []
        for overrides in (after, before):
            self._release()  # all memory is for one
            with self._new(overrides) as training:
                turns = alone(training, turns=self._turns, seconds=self._turn_seconds)
            if isinstance(turns, Failure):
                memory = turns.memory and overrides is after
                return Outcome(OUT_OF_MEMORY if memory else "failed", error=turns.reason)
            rates.append(turns)
        ratio = unpaired(*rates)
        return Outcome(ratio.verdict, ratio.as_record(), turns={"before": rates[1], "after": rates[0]})

    def _begun(self, overrides: tuple[str, ...]) -> TakesTurns | Failure:
        """The training that stands ready, if it has not ended, or a new one."""
        if (standing := self._ready.get(overrides)) is not None and standing.session is not None:
            return standing
        training = self._ready[overrides] = self._new(overrides)
        outcome = training.start()
        return outcome if isinstance(outcome, Failure) else training

    def _new(self, overrides: Sequence[str]) -> TakesTurns:
        self.trainings += 1
        folder = self.folder / "turns" / str(self.trainings)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return self._training(overrides, folder)

    def _timeout(self) -> float:
        """Seconds for one training: what is left of the budget, and a minute at least."""
        return min(self._longest, max(LEAST_SECONDS, self._deadline - time.monotonic()))

    def _release(self, kept: Sequence[tuple[str, ...]] = ()) -> None:
        """End all trainings but these."""
        for overrides in [one for one in self._ready if one not in kept]:
            self._ready.pop(overrides).close()
