"""The order in which cells are measured, and when it is enough."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from strobe.bench.harness.declare import Cell, Input, Trial, slug
from strobe.bench.harness.results import Results, median_rate
from strobe.bench.harness.trial import Report, run_trial
from strobe.measure.timing import rounds
from strobe.present.terminal import ProgressDisplay
from strobe.process.fork import Failure

LEAST = 6  # trials before a cell can be known well enough: of fewer, the interval is their range


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    rounds: int
    turn: float  # seconds timed in a trial
    budget: float  # seconds in all, after which nothing but a cell's first trial begins
    precision: float  # half of a 95% interval, as a share of the median, that is enough
    timeout: float  # seconds of one trial
    seed: int  # of the order


class Bar(ProgressDisplay):
    """Shows the trials that are done and the time left; in a file, only a line for each failure."""

    def __init__(self, console: Console, results: Results, rounds: int) -> None:
        self._trials = results.trials
        super().__init__(console, rounds * len(results.trials), self._done())

    def tries(self, cell: Cell, number: int, left: float) -> None:
        """Show which cell is being measured, and the time left."""
        self.begins(f"{cell.name} ({number + 1})", left)

    def ended(self, outcome: Report | Failure, cell: Cell) -> None:
        """Advance; a failure stays on the screen."""
        self.completes(self._done())
        if isinstance(outcome, Failure):
            self.say(f"{cell.name} failed: {outcome.reason}")

    def _done(self) -> int:
        return sum(len(trials) for trials in self._trials.values())


@dataclass
class Campaign:
    """Measures the cells in rounds, each in a new random order, and saves the record after each trial."""

    results: Results
    settings: Settings
    source: Input
    overrides: Sequence[str]  # of train.py's configuration
    folder: Path  # for the record, and what cells leave behind
    run: Callable[..., Report | Failure] = run_trial
    lengths: dict[str, float] = field(default_factory=dict)  # seconds of a cell's latest trial
    failed: set[str] = field(default_factory=set)  # in this campaign: a resumed one tries them again

    def measure(self, watcher: Bar) -> None:
        """Measure until each cell has all its trials, is known well enough or has failed, or the budget is spent."""
        results, settings = self.results, self.settings
        began = time.perf_counter() - results.seconds
        for in_round, cell in rounds(results.suite.cells, range(settings.rounds), settings.seed):
            trials = results.trials[cell.name]
            if (number := len(trials)) > in_round or cell.name in self.failed or self._is_known(trials):
                continue
            since = time.perf_counter()
            results.seconds = since - began
            if number and results.seconds + self.lengths.get(cell.name, 0.0) > settings.budget:
                results.budget_spent = True
                continue
            watcher.tries(cell, number, self.left())
            place = self.folder / "cells" / slug(cell.name)
            with TemporaryDirectory(prefix="strobe-", ignore_cleanup_errors=True) as scratch:
                trial = Trial(place, number, tuple(self.overrides), self.source, Path(scratch))
                outcome = self.run(cell, trial, turn=settings.turn, timeout=settings.timeout)
            results.add(cell, in_round, outcome)
            if isinstance(outcome, Failure):
                self.failed.add(cell.name)
            now = time.perf_counter()
            self.lengths[cell.name], results.seconds = now - since, now - began
            results.save(self.folder, "running")
            watcher.ended(outcome, cell)

    def _is_known(self, trials: Sequence[Mapping[str, object]]) -> bool:
        rate = median_rate(trials) if len(trials) >= LEAST else None
        return rate is not None and (rate.within or 0.0) <= self.settings.precision

    def left(self) -> float:
        """About how many seconds the remaining trials take, by the cell's latest one, or the average of the others."""
        typical = sum(self.lengths.values()) / len(self.lengths) if self.lengths else 1.0 + self.settings.turn
        first = further = 0.0
        for name, trials in self.results.trials.items():
            if name not in self.failed and not self._is_known(trials):
                length = self.lengths.get(name, typical)
                first += length * (not trials)
                further += length * max(0, self.settings.rounds - max(1, len(trials)))
        return first + min(further, max(0.0, self.settings.budget - self.results.seconds - first))
