"""The rows of steps.csv, each written when all about its step is known."""

import csv
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .columns import COLUMNS, DEVICE, GAPS, OWNED
from .phase_clock import Lap

FLUSH_SECONDS = 5  # at most so much is lost when the process is killed


@dataclass
class Row:
    """A step that is not written yet: what follows it is not known, or its device is not done."""

    head: Sequence[Any]  # from `step` to `profiled`
    lap: Lap
    gaps: dict[str, float] = field(default_factory=lambda: dict.fromkeys(GAPS, 0.0))
    device: Mapping[str, float] | None = None


class StepRows:
    """Writes ``COLUMNS``, with a `device` its seconds, and those of each owner of hooks."""

    def __init__(self, path: Path, owners: Sequence[str], *, device: bool) -> None:
        self._owners = owners
        self._device = device
        self._waiting: deque[Row] = deque()
        self._file = path.open("w", newline="", buffering=1 << 16)
        self._csv = csv.writer(self._file)
        names = [f"device_{name}" for name in DEVICE] if device else []
        self._csv.writerow([*COLUMNS, *names, *(OWNED + owner for owner in owners)])
        self._file.flush()
        self._flushed = time.monotonic()

    def add(self, head: Sequence[Any], lap: Lap) -> None:
        """A step has ended: those before it are followed by nothing more."""
        self._waiting.append(Row(head, lap))

    def follow(self, gaps: Mapping[str, float]) -> None:
        """Seconds between the latest step and the next one, in addition to those told already."""
        if self._waiting:
            row = self._waiting[-1]
            row.gaps = {name: row.gaps[name] + gaps.get(name, 0.0) for name in GAPS}

    def tell(self, device: Iterable[Mapping[str, float]]) -> None:
        """The device's seconds of the next steps of which they were not known."""
        unknown = [row for row in self._waiting if row.device is None]
        for row, seconds in zip(unknown, device, strict=False):
            row.device = seconds

    def write(self, *, last: bool = False) -> None:
        """Write the rows about which all is known; at the `last` moment all."""
        while self._waiting and (last or self._is_known(self._waiting[0])):
            row = self._waiting.popleft()
            phases = row.lap.phases
            values: list[float | None] = [sum(phases.values()), *phases.values(), *row.gaps.values()]
            if self._device:
                values += [row.device.get(name) if row.device else None for name in DEVICE]
            values += [row.lap.owned(owner) for owner in self._owners]
            self._csv.writerow([*row.head, *(f"{value:.7f}" if value else value for value in values)])
        if (now := time.monotonic()) - self._flushed > FLUSH_SECONDS:
            self._file.flush()
            self._flushed = now

    def close(self) -> None:
        """Write what is left."""
        with self._file:
            self.write(last=True)

    def _is_known(self, row: Row) -> bool:
        return len(self._waiting) > 1 and (not self._device or row.device is not None)
