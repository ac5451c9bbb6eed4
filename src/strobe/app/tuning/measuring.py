"""Measures for the search: probe runs, one side alone, and trainings that take turns."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strobe.app.config.compose import ENDLESS
from strobe.app.config.register import run_name
from strobe.app.config.schema import TuneConfig
from strobe.app.run.apart import Ended, train
from strobe.app.tuning.alone import Alone
from strobe.app.tuning.record import OUT_OF_MEMORY, Outcome
from strobe.app.tuning.trainee import Ready, Trainee
from strobe.diagnose.predict import step_of
from strobe.duel.paired_trial import Defeat, Duel, alone, duel
from strobe.measure.statistics import FALSE_ALARM, unpaired
from strobe.overrides import applied
from strobe.process.fork import Failure
from strobe.records.run import Record, load_record

LEAST_SECONDS = 60.0  # for a training, however little of the budget is left
STEPS = 12  # of a probe run, at least: of them three warm up
LONGER = 5  # times as long a second probe run takes, if the first held no measured step


class Measuring:
    """Measures on this machine; a context manager that leaves no process.

    The better one of the latest comparison stays ready as a paused process, for the next one to be compared with.

    Args:
        folder: of the search; runs lie below it in ``looks``, what trainings in turns leave behind in ``turns``.
        config: how long things take.
        deadline: of ``time.monotonic()``, when the budget is spent.
        without: overrides that take out what would end a training, such as ``~callbacks.stopping``.

    Attributes:
        failure: why the latest probe run found nothing.
        trainings: that were started.
    """

    def __init__(self, folder: Path, config: TuneConfig, *, deadline: float, without: Sequence[str] = ()) -> None:
        self.folder = folder
        self.config = config
        self.failure: str | None = None
        self.trainings = 0
        self._deadline = deadline
        self._without = without
        self._ready: dict[tuple[str, ...], Trainee] = {}  # paused, by their overrides
        self._alone: Alone | None = None
        self._step_seconds = 0.0  # of the latest probe run

    def __enter__(self) -> "Measuring":
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def probe(self, overrides: Sequence[str]) -> tuple[Record | None, str]:
        """The record of a short run with ceilings and findings, None if it failed; and its directory.

        One that held too few steps is repeated for longer.
        """
        seconds = max(self.config.look_seconds, STEPS * self._step_seconds)
        number = 1 + len(list((self.folder / "looks").glob("*")))
        name = f"looks/{number}{run_name(overrides)}"
        for length in (seconds, LONGER * seconds):
            given = [
                *applied(overrides, self._without),
                *ENDLESS,
                f"trainer.max_time={{seconds:{max(1.0, length):.0f}}}",
                "trainer.enable_progress_bar=false",
                "test=false",
                "ceilings=true",
                f"ceilings_seconds={self.config.ceilings_seconds}",
            ]
            ended = self._train(given, self.folder / name)
            if ended.status != "completed" and self._ready:  # which may hold what it needs
                self._release()
                ended = self._train(given, self.folder / name)
            self.failure = ended.error
            if ended.status != "completed":
                return None, name
            record = load_record(self.folder / name)
            if (step := step_of(record)) is not None:
                self._step_seconds = step.total * step.images
                return record, name
        self.failure = f"{LONGER * seconds:.0f} s of training held no step to measure; give a larger tune.look_seconds"
        return None, name

    def alone(self, overrides: Sequence[str], side: str, changes: Sequence[str]) -> dict[str, Any] | None:
        """One side with changes, as ``ceilings.alternatives`` has it; its process ends when trainings compare."""
        if self._alone is None:
            given = [*applied(overrides, self._without), f"ceilings_seconds={self.config.ceilings_seconds}"]
            self._alone = Alone(given, self.folder / "alone", timeout=self._timeout())
        return self._alone.measure(side, changes)

    def compare(self, before: Sequence[str], after: Sequence[str], *, among: int = 1, proof: bool = False) -> Outcome:
        """How many times as fast ``after`` trains as ``before``, as one of so many trials that share false alarms.

        They train in turns; a candidate for which there is no memory beside the other is measured alone. A ``proof``
        takes all the time that it needs.
        """
        sides = tuple(before), tuple(after)
        self._release(() if proof else sides)
        stays: tuple[tuple[str, ...], ...] = sides[:1]
        try:
            found = self._duel(*sides, proof=proof, among=among)
            if isinstance(found, Defeat) and found.side == "incumbent":
                return Outcome("failed", error=f"what it is compared with failed: {found.reason}")
            if isinstance(found, Failure) and found.memory:
                return self._one_after_the_other(before, after)
            if isinstance(found, Failure):
                return Outcome("failed", error=found.reason)
            turns = {"before": found.theirs, "after": found.ours}
            outcome = Outcome(found.ratio.verdict, found.ratio.as_record(), turns=turns)
            stays = sides[1:] if outcome.verdict == "faster" or (among == 1 and outcome.is_needed) else sides[:1]
            return outcome
        finally:
            self._release(() if proof else stays)

    def _duel(self, before: tuple[str, ...], after: tuple[str, ...], *, proof: bool, among: int) -> Duel | Failure:
        """A duel with the standing training, which is begun anew once if it ends by itself."""
        for attempt in (1, 2):
            pair: list[Trainee] = []
            for overrides in (before, after):
                if isinstance(trainee := self._begun(overrides), Failure):
                    return Defeat(trainee.reason, trainee.memory, "incumbent" if overrides is before else "candidate")
                pair.append(trainee)
            found = duel(
                *pair,
                turns=self.config.turns,
                seconds=self.config.turn_seconds,
                early=not proof,
                alpha=FALSE_ALARM / among,
                deadline=None if proof else self._deadline,
            )
            if not isinstance(found, Defeat) or found.side == "candidate" or attempt == 2:
                break
        return found

    def _one_after_the_other(self, before: Sequence[str], after: Sequence[str]) -> Outcome:
        """Rates of turns in a row: less certain, for a machine's speed drifts between them."""
        rates = []
        for overrides in (after, before):
            self._release()  # all memory is for one
            with self._trainee(overrides) as trainee:
                turns: list[float] | Failure | Ready = trainee.start()
                if not isinstance(turns, Failure):
                    turns = alone(trainee, turns=self.config.turns, seconds=self.config.turn_seconds)
            if isinstance(turns, Failure):
                memory = turns.memory and overrides is after
                return Outcome(OUT_OF_MEMORY if memory else "failed", error=turns.reason)
            rates.append(turns)
        ratio = unpaired(*rates)
        return Outcome(ratio.verdict, ratio.as_record(), turns={"before": rates[1], "after": rates[0]})

    def _begun(self, overrides: tuple[str, ...]) -> Trainee | Failure:
        """The training that stands ready, if it has not ended, or a new one."""
        if (standing := self._ready.get(overrides)) is not None and standing.session is not None:
            return standing
        trainee = self._ready[overrides] = self._trainee(overrides)
        outcome = trainee.start()
        return outcome if isinstance(outcome, Failure) else trainee

    def _train(self, overrides: Sequence[str], folder: Path) -> Ended:
        self.trainings += 1
        return train(overrides, folder, timeout=self._timeout())

    def _trainee(self, overrides: Sequence[str]) -> Trainee:
        self.trainings += 1
        folder = self.folder / "turns" / str(self.trainings)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return Trainee(applied(overrides, self._without), folder, timeout=self._timeout())

    def _timeout(self) -> float:
        """Seconds for one training: what is left of the budget, and a minute at least."""
        return min(self.config.timeout_seconds, max(LEAST_SECONDS, self._deadline - time.monotonic()))

    def _release(self, kept: Sequence[tuple[str, ...]] = ()) -> None:
        """End what measures sides alone, and all trainings but these."""
        if self._alone is not None:
            self._alone.close()
            self._alone = None
        for overrides in [one for one in self._ready if one not in kept]:
            self._ready.pop(overrides).close()
