"""The cells of one table as they are shown: in its unit, with names that tell them apart."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strobe.bench.harness.declare import Suite, Table
from strobe.bench.harness.wording import figure, in_unit
from strobe.report.html.text import counted

UNITS = {"ms": "ms", "images/s": "images/s", "us an image": "µs an image"}
ENOUGH = 6  # visits, from which on there is an interval (median_interval); of fewer their range
SERIES = 10  # colours; further columns begin again, with broken lines
Cell = Mapping[str, Any]  # of results.json


@dataclass(frozen=True)
class Value:
    """A figure in the table's unit, with its 95% interval, or the range of few, over so many visits."""

    median: float
    low: float
    high: float
    visits: int

    @property
    def text(self) -> str:
        """``1,234 (1,200 to 1,270)``."""
        return f"{figure(self.median)} ({self.interval})"

    @property
    def interval(self) -> str:
        """``1,200 to 1,270``; one visit tells none."""
        return f"{figure(self.low)} to {figure(self.high)}" if self.repeated else "one visit"

    @property
    def repeated(self) -> bool:
        """Whether there is an interval."""
        return self.visits > 1


@dataclass(frozen=True)
class Shown:
    """One table: its cells, and the number of each column's colour."""

    table: Table
    cells: Sequence[Cell]
    colours: Mapping[str, int]

    @property
    def unit(self) -> str:
        """As it is written."""
        return UNITS[self.table.unit]

    @property
    def better(self) -> str:
        """In which direction better lies."""
        return "more is better" if self.table.unit == "images/s" else "less is better"

    @property
    def rows(self) -> list[str]:
        """In the order of the suite."""
        return list(dict.fromkeys(cell["row"] for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """In the order of the suite."""
        return list(dict.fromkeys(cell["column"] for cell in self.cells))

    @property
    def varying(self) -> list[str]:
        """Of ``threads`` and ``cache``, what differs within the table."""
        return [key for key in ("threads", "cache") if len({cell[key] for cell in self.cells}) > 1]

    @property
    def ranges(self) -> str:
        """What stands beside the figures: intervals, ranges of few visits, or both; of single visits nothing."""
        return ranges(self.cells)

    def variant(self, cell: Cell) -> str:
        """What tells a cell from others of its row and column, such as ``4 threads, cold``; mostly nothing."""
        return ", ".join(text for key in self.varying if (text := setting(key, cell[key])))

    def row(self, name: str) -> str:
        """A row's name in words: ``batch size 32`` for a bare 32."""
        return f"{self.table.rows} {name}".strip() if re.fullmatch(r"[\d.,]+", name) else name

    def css(self, cell: Cell) -> str:
        """The class of its column's colour."""
        return f"s{self.colours[cell['column']] % SERIES + 1}"

    def value(self, cell: Cell) -> Value | None:
        """None where nothing was measured."""
        known = [cell[key][end] for key in ("seconds", "images_per_second") for end in ("median", "low", "high")]
        if any(number is None or not (0 < number < math.inf) for number in known):
            return None
        return Value(*in_unit(self.table, cell), len(cell["visits"]))


def shown_of(suite: Suite, record: Mapping[str, Any]) -> list[Shown]:
    """The suite's tables; a column has the same colour in all of them."""
    columns = list(dict.fromkeys(cell["column"] for cell in record["cells"]))
    colours = {name: number for number, name in enumerate(columns)}
    return [
        Shown(table, [cell for cell in record["cells"] if cell["table"] == table.name], colours)
        for table in suite.tables
    ]


def ranges(cells: Sequence[Cell]) -> str:
    """``95% interval``, ``range`` of fewer visits, or both; nothing where no cell was visited twice."""
    visits = [len(cell["visits"]) for cell in cells if len(cell["visits"]) > 1]
    if not visits:
        return ""
    if min(visits) >= ENOUGH:
        return "95% interval"
    return "range" if max(visits) < ENOUGH else f"95% interval, or range of fewer than {ENOUGH} visits"


def setting(key: str, value: Any) -> str:
    """``4 threads``, ``cold``; nothing where it does not matter."""
    return counted(value, "thread") if key == "threads" else value or ""


def state(cell: Cell) -> str:
    """Why a cell has no figure."""
    return "failed" if cell["status"] == "failed" else "waiting"


def slug(name: str) -> str:
    """A table's name as that of a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80] or "table"
