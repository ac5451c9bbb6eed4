"""A step's phases, as named ranges side by side in a trace, and as times."""

import time
from dataclasses import dataclass
from typing import Any

import torch

from .clock import Phases
from .columns import PHASES

NAMES = {"data_wait": "fetch"}  # in a trace, where the field calls it so
VALIDATION = "validation"
RANGES = {VALIDATION, *(NAMES.get(phase, phase) for phase in PHASES)}


@dataclass(frozen=True)
class Interval:
    """From `start` to `end`, in nanoseconds of the monotonic clock."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Step:
    """A training step from `start` to `end`, in nanoseconds of the monotonic clock.

    `phases` are named as in `columns.PHASES` and do not overlap; what none covers is "other".
    """

    number: int
    start: int
    end: int
    phases: tuple[Interval, ...]


class Ranges(Phases):
    """Opens a ``record_function`` for each phase, unless it is paused.

    Nested phases are cut, so that one ends where another begins. That may cut torch's range
    ``Optimizer.step#...``; `strobe.callbacks.trace_writer.fit_updates` makes it fit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.paused = True
        self.intervals: list[Interval] = []  # of the step so far; monotonic nanoseconds
        self._range: Any = None
        self._name = ""
        self._since = 0

    def boundary(self) -> tuple[Interval, ...]:
        """End the open range, so that none crosses the step's end; returns the step's phases and forgets them."""
        self._close()
        self.settle()
        done, self.intervals = tuple(self.intervals), []
        return done

    def pause(self) -> None:
        """Open one range called `validation` until :meth:`resume`, whatever happens in it."""
        if not self.paused:
            self._close()
            self._open(VALIDATION)
            self.paused = True

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        if self.hooks:
            self._close()
            self.paused = False

    def last_end(self, phase: str) -> int:
        """When a phase of the current step last ended, or now if none was seen; monotonic nanoseconds."""
        ends = [interval.end for interval in self.intervals if interval.name == phase]
        return ends[-1] if ends else time.monotonic_ns()

    def show(self, phase: str | None) -> None:
        """End the open range and open another, unless it is the same."""
        phase = phase and phase.partition("/")[0]
        if self.paused or (self._range is not None and phase == self._name):
            return
        self._close()
        if phase is not None:
            self._open(phase)

    def _open(self, name: str) -> None:
        self._name, self._since = name, time.monotonic_ns()
        self._range = torch.profiler.record_function(NAMES.get(name, name))
        self._range.__enter__()

    def _close(self) -> None:
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None
            self.intervals.append(Interval(self._name, self._since, time.monotonic_ns()))
