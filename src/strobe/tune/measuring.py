"""Measures for the search: short runs that are looked at, and trainings that take turns."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from strobe.compare.ratios import unpaired, verdict
from strobe.composing import ENDLESS
from strobe.diagnose.predict import step_of
from strobe.diagnose.record import Record, load_record
from strobe.errors import ConfigError
from strobe.launch import run_name
from strobe.processes import Failure
from strobe.schema.tune import TuneConfig
from strobe.sweep.training import train
from strobe.tune.duel import alone, duel
from strobe.tune.search import Outcome
from strobe.tune.trainee import Trainee

OUT_OF_MEMORY = "out of memory"
STEPS = 12  # of a look, at least: of them three warm up
LONGER = 5  # times as long is looked at a second time, if the first held no measured step


class Measuring:
    """Measures on this machine; a context manager that leaves no process.

    The latest best configuration stays ready as a paused process, for the next one to be compared with.

    Args:
        folder: of the search; runs lie below it in ``looks``, what trainings in turns leave behind in ``turns``.
        config: how long things take.
    """

    def __init__(self, folder: Path, config: TuneConfig) -> None:
        self.folder = folder
        self.config = config
        self.failure: str | None = None  # of the latest look
        self._standing: tuple[tuple[str, ...], Trainee] | None = None
        self._step_seconds = 0.0  # of the latest look
        self._begun = 0

    def __enter__(self) -> "Measuring":
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def look(self, overrides: Sequence[str]) -> tuple[Record | None, str]:
        """A short run of its own with ceilings and findings; one that held too few steps is repeated for longer."""
        seconds = max(self.config.look_seconds, STEPS * self._step_seconds)
        number = 1 + len(list((self.folder / "looks").glob("*")))
        name = f"looks/{number}{run_name(overrides)}"
        for length in (seconds, LONGER * seconds):
            given = [
                *overrides,
                *ENDLESS,
                f"trainer.max_time={{seconds:{length:.0f}}}" if length >= 1 else "trainer.max_time={seconds:1}",
                "trainer.enable_progress_bar=false",
                "test=false",
                "ceilings=true",
                f"ceilings_seconds={self.config.ceilings_seconds}",
            ]
            ended = train(given, self.folder / name, timeout=self.config.timeout_seconds)
            self.failure = ended.error
            if ended.status != "completed":
                return None, name
            record = load_record(self.folder / name)
            if (step := step_of(record)) is not None:
                self._step_seconds = step.total * step.images
                return record, name
        self.failure = f"{LONGER * seconds:.0f} s of training held no step to measure; give a larger tune.look_seconds"
        return None, name

    def compare(self, before: Sequence[str], after: Sequence[str], *, keep: bool = True) -> Outcome:
        """Let both train in turns; a candidate for which there is no memory beside the other is measured alone."""
        candidate = self._trainee(after)
        try:
            incumbent = self._ready(before)
            if isinstance(incumbent, Failure):
                return _failed(incumbent)
            outcome = candidate.start()
            if isinstance(outcome, Failure) and outcome.memory:
                candidate.close()
                return self._one_after_the_other(before, after)
            if isinstance(outcome, Failure):
                return _failed(outcome)
            found = duel(incumbent, candidate, turns=self.config.turns, seconds=self.config.turn_seconds, early=keep)
            if isinstance(found, Failure):
                self._release()
                return _failed(found)
            if keep and found.verdict == "faster":
                self._release()
                self._standing, candidate = (tuple(after), candidate), self._trainee(after)
            return Outcome(found.verdict, found.ratio, turns={"before": found.theirs, "after": found.ours})
        finally:
            candidate.close()

    def _one_after_the_other(self, before: Sequence[str], after: Sequence[str]) -> Outcome:
        """Rates of turns in a row: less certain, for a machine's speed drifts between them."""
        rates = []
        for overrides in (after, before):
            self._release()
            with self._trainee(overrides) as trainee:
                ready = trainee.start()
                turns = (
                    ready
                    if isinstance(ready, Failure)
                    else alone(trainee, turns=self.config.turns, seconds=self.config.turn_seconds)
                )
            if isinstance(turns, Failure):
                return _failed(turns)
            rates.append(turns)
        ratio = unpaired(*rates)
        return Outcome(verdict(ratio), ratio, turns={"before": rates[1], "after": rates[0]})

    def _ready(self, overrides: Sequence[str]) -> Trainee | Failure:
        """The standing training, if it is this one, else a new one that becomes it."""
        if self._standing is not None and self._standing[0] == tuple(overrides):
            return self._standing[1]
        self._release()
        trainee = self._trainee(overrides)
        outcome = trainee.start()
        if isinstance(outcome, Failure):
            trainee.close()
            return outcome
        self._standing = (tuple(overrides), trainee)
        return trainee

    def _trainee(self, overrides: Sequence[str]) -> Trainee:
        self._begun += 1
        folder = self.folder / "turns" / str(self._begun)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return Trainee(overrides, folder, timeout=self.config.timeout_seconds)

    def _release(self) -> None:
        if self._standing is not None:
            self._standing[1].close()
            self._standing = None


def require_one_device(devices: object) -> None:
    """Raise a :class:`ConfigError` for several ranks, which cannot take turns in a process."""
    if str(devices) not in ("1", "auto", "[0]", "-1"):
        raise ConfigError(
            f"trainer.devices={devices} cannot be tuned: a training takes turns in one process; tune with "
            "trainer.devices=1, and then train with what was found"
        )


def _failed(failure: Failure) -> Outcome:
    return Outcome(OUT_OF_MEMORY if failure.memory else "failed", error=failure.reason)
