"""Measures the application for the search: probe runs, one side alone, and trainings that take turns."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strobe.app.build import PRELOAD
from strobe.app.config.compose import ENDLESS_TRAINING
from strobe.app.config.register import run_name
from strobe.app.config.schema import TuneConfig
from strobe.app.run.apart import Ended, train
from strobe.app.tuning.trainee import Trainee, measure_sides
from strobe.diagnose.predict import step_of
from strobe.overrides import applied
from strobe.process.fork import Failure, FreshProcess
from strobe.records.run import Record, load_record
from strobe.tune.comparing import Comparing

STEPS = 12  # of a probe run, at least: of them three warm up
LONGER = 5  # times as long a second probe run takes, if the first held no measured step


class Measuring(Comparing):
    """Configurations of ``train.py``; what is measured alone ends when trainings compare.

    Probe runs lie in ``looks``, below the folder. The overrides ``without`` take out what would end a training, such as
    ``~callbacks.stopping``.
    """

    def __init__(self, folder: Path, config: TuneConfig, *, deadline: float, without: Sequence[str] = ()) -> None:
        super().__init__(
            folder,
            turns=config.turns,
            turn_seconds=config.turn_seconds,
            timeout=config.timeout_seconds,
            deadline=deadline,
        )
        self.config = config
        self._without = without
        self._alone: FreshProcess | None = None  # measures sides
        self._step_seconds = 0.0  # of the latest probe run

    def probe(self, overrides: Sequence[str]) -> tuple[Record | None, str]:
        """As of :class:`Comparing`; a run that held too few steps is repeated for longer."""
        seconds = max(self.config.look_seconds, STEPS * self._step_seconds)
        number = 1 + len(list((self.folder / "looks").glob("*")))
        name = f"looks/{number}{run_name(overrides)}"
        for length in (seconds, LONGER * seconds):
            training = [
                *applied(overrides, self._without),
                *ENDLESS_TRAINING,
                f"trainer.max_time={{seconds:{max(1.0, length):.0f}}}",
                "trainer.enable_progress_bar=false",
                "test=false",
                "ceilings=true",
                f"ceilings_seconds={self.config.ceilings_seconds}",
            ]
            ended = self._train(training, self.folder / name)
            if ended.status != "completed" and self._ready:  # which may hold what it needs
                self._release()
                ended = self._train(training, self.folder / name)
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
        """As of :class:`Comparing`, one after the other in a process of their own, begun anew after one that failed."""
        if self._alone is None:
            settings = [*applied(overrides, self._without), f"ceilings_seconds={self.config.ceilings_seconds}"]
            (folder := self.folder / "alone").mkdir(parents=True, exist_ok=True)
            self._alone = FreshProcess(measure_sides, settings, folder, preload=[PRELOAD], guarded=True)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended
            self._alone.pipe.send((side, list(changes)))
        answer: dict[str, Any] | Failure | None = self._alone.receive(self._timeout())
        if isinstance(answer, Failure):
            self._end_alone()
            return None
        return answer

    def _end_alone(self) -> None:
        if self._alone is not None:
            self._alone.close()
            self._alone = None

    def _train(self, overrides: Sequence[str], folder: Path) -> Ended:
        self.trainings += 1
        return train(overrides, folder, timeout=self._timeout())

    def _training(self, overrides: Sequence[str], folder: Path) -> Trainee:
        return Trainee(applied(overrides, self._without), folder, timeout=self._timeout())

    def _release(self, kept: Sequence[tuple[str, ...]] = ()) -> None:
        self._end_alone()
        super()._release(kept)
