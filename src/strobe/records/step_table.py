"""``steps.csv`` as columns: 8 bytes a cell, so that a million steps fit into memory."""

import csv
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strobe.callbacks.columns import DEVICE, GAPS, KERNEL, MAPPING, PHASES

Values = NDArray[np.float64]
CHUNK = 1 << 24  # bytes of rows that are parsed at once
LONGEST_ROW = 4096  # bytes: from so many for each row that is wanted, the end of a file is read


class StepTable:
    """N steps. Cells that are empty are NaN in ``columns`` (M,); ``places`` (N,) says which of the M rows are meant."""

    def __init__(self, columns: dict[str, Values], places: NDArray[np.int64]) -> None:
        self.columns, self.places = columns, places

    def __len__(self) -> int:
        return len(self.places)

    def has(self, *names: str) -> NDArray[np.bool_]:
        """Which steps (N,) have a value in each of these columns."""
        if not self.columns.keys() >= {*names}:
            return np.zeros(len(self), dtype=bool)
        known: NDArray[np.bool_] = ~np.isnan([self.columns[name][self.places] for name in names])
        return np.asarray(known.all(axis=0))

    def get(self, name: str, default: float = 0.0) -> Values:
        """The column's values (N,); empty cells, and a column that is missing, read as ``default``."""
        column = self.columns.get(name)
        if column is None:
            return np.full(len(self), default)
        return np.nan_to_num(column[self.places], copy=False, nan=default, posinf=np.inf, neginf=-np.inf)

    def take(self, which: NDArray[np.bool_]) -> "StepTable":
        """Only these steps."""
        return StepTable(self.columns, self.places[which])

    def at(self, steps: Values) -> "StepTable":
        """The rows of these steps, each of which has one; of several of one step the last."""
        numbers, last = np.unique(self.get("step")[::-1], return_index=True)
        return StepTable(self.columns, self.places[::-1][last[np.searchsorted(numbers, steps)]])

    @property
    def is_told(self) -> bool:
        """Whether the device's own time is known."""
        return bool(self.has("device_total")[-1:].any())

    @property
    def lengths(self) -> Values:
        """Seconds (N,) by the host, or by its device if those sum up to more: the host then ended steps ahead of it."""
        return max(self.get("total"), self.get("device_total"), key=np.sum)

    def spent(self, name: str) -> Values:
        """Seconds (N,) of a phase, or of the step; the device's where known, as its host waits for it anywhere."""
        return self.get(f"device_{name}" if name in DEVICE and self.is_told else name)

    @property
    def phases(self) -> dict[str, Values]:
        """Likewise, of the step (``total``) and of each phase."""
        return {name: self.spent(name) for name in ("total", *PHASES)}

    @property
    def gaps(self) -> Values:
        """Seconds (N,) between each step and the next one."""
        return sum((self.get(name) for name in GAPS[1:]), self.get(GAPS[0]))

    @property
    def begin_epochs(self) -> NDArray[np.bool_]:
        """Which steps (N,) are the first of an epoch; not the first of all."""
        return np.append(False, np.diff(self.get("epoch")) != 0)[: len(self)]

    @property
    def resumes(self) -> NDArray[np.bool_]:
        """Which steps (N,) are the first of an epoch, or follow another pause, such as a validation."""
        paused: NDArray[np.bool_] = np.append(False, self.gaps[:-1] > 0)[: len(self)]
        return self.begin_epochs | paused

    def more_in_kernel(self, which: NDArray[np.bool_]) -> float | None:
        """Seconds that computing is in the kernel in the mean of these steps (N,), beyond those that follow no pause.

        None where none of either was asked for it.
        """
        spent, computed = (sum(self.get(prefix + phase) for phase in MAPPING) for prefix in ("", "cpu_"))
        seconds, asked = spent * self.get(KERNEL) / np.maximum(computed, 1e-9), self.has(KERNEL)
        some, others = seconds[asked & which], seconds[asked & ~self.resumes]
        return float(some.mean() - np.median(others)) if len(some) and len(others) else None

    @property
    def updates(self) -> Values:
        """How many updates (N,) each step made."""
        return self.get("updates", 1.0)

    def rows(self) -> list[dict[str, float]]:
        """Each step as a dictionary, without empty cells."""
        values = zip(*(self.columns[name][self.places].tolist() for name in self.columns), strict=True)
        return [
            {name: value for name, value in zip(self.columns, row, strict=True) if not math.isnan(value)}
            for row in values
        ]


NO_STEPS = StepTable({}, np.arange(0))


def read_table(path: Path, wanted: Callable[[str], bool] = lambda _: True, *, last: int | None = None) -> StepTable:
    """The complete rows, or only the ``last`` N, of the columns ``wanted``; a killed run's last row may be cut off.

    Raises:
        ValueError: the file is damaged.
    """
    if not path.is_file():
        return NO_STEPS
    with path.open("rb") as file:
        names = next(csv.reader([file.readline().decode()]), [])
        if last is not None and (near := path.stat().st_size - last * LONGEST_ROW) > file.tell():
            file.seek(near)
            file.readline()  # what is left of a row
        start, count = file.tell(), sum(block.count(b"\n") for block in iter(lambda: file.read(CHUNK), b""))
        kept = [place for place, name in enumerate(names) if wanted(name)]
        cells, filled = np.empty((len(kept), count)), 0
        file.seek(start)
        while lines := file.readlines(CHUNK):
            whole = [line for line in lines if line.endswith(b"\n") and line.strip()]
            if filled + len(whole) > count:  # written since they were counted
                whole = whole[: count - filled]
            if whole:
                cells[:, filled : filled + len(whole)] = _parsed(path, whole, len(names))[:, kept].T
            filled += len(whole)
    first = 0 if last is None else max(0, filled - last)
    return StepTable({names[place]: row for place, row in zip(kept, cells, strict=True)}, np.arange(first, filled))


def _parsed(path: Path, lines: Sequence[bytes], width: int) -> Values:
    """The cells (len(lines), width) of whole rows."""
    text = b",%s," % b",".join(line.rstrip(b"\r\n") for line in lines)
    text = text.replace(b",,", b",nan,").replace(b",,", b",nan,")[1:-1]  # twice: each comma is seen once
    with warnings.catch_warnings(action="error"):
        try:
            return np.fromstring(text, sep=",").reshape(len(lines), width)
        except (DeprecationWarning, ValueError):  # of a row that is shorter, or no number
            pass
    rows = list(csv.reader(line.decode() for line in lines))
    if any(len(row) > width for row in rows):
        raise ValueError(f"{path} has rows that are longer than its header")
    return np.array([[float(cell or "nan") for cell in [*row, *[""] * (width - len(row))]] for row in rows])
