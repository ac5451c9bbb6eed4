"""The cells of one table as they are shown: in its unit, with names that tell them apart, and as a picture."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strobe.bench.harness.declare import Suite, Table, slug
from strobe.bench.harness.results import CellRecord
from strobe.measure.statistics import ENOUGH
from strobe.present.charts.bars import Bar, bars
from strobe.present.charts.lines import LONGEST, SERIES, Point, Series, lines
from strobe.present.charts.scale import axis
from strobe.present.charts.svg import Picture
from strobe.present.format import Value, counted, cut, figure, written

ONE_TRIAL = "one trial"  # in the place of an interval
UNITS = {"ms": "ms", "images/s": "images/s", "us an image": "µs an image"}


@dataclass(frozen=True)
class Shown:
    """One table: its cells, and the number of each column's colour."""

    table: Table
    cells: Sequence[CellRecord]
    colours: Mapping[str, int]

    @property
    def unit(self) -> str:
        """As it is written."""
        return UNITS[self.table.unit]

    @property
    def file(self) -> str:
        """The name of its picture."""
        return f"{slug(self.table.name).lower()}.svg"

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

    def variant(self, cell: CellRecord) -> str:
        """What tells a cell from others of its row and column, such as ``4 threads, cold``; mostly nothing."""
        return ", ".join(text for key in self.varying if (text := setting(key, cell[key])))

    def row(self, name: str) -> str:
        """A row's name in words: ``batch size 32`` for a bare 32."""
        return f"{self.table.rows} {name}".strip() if re.fullmatch(r"[\d.,]+", name) else name

    def css(self, cell: CellRecord) -> str:
        """The class of its column's colour."""
        return f"s{self.colours[cell['column']] % SERIES + 1}"

    def value(self, cell: CellRecord) -> Value | None:
        """In the table's unit; without an interval where there was one trial, and None where there was none."""
        if not cell["visits"]:
            return None
        of, scale = ("seconds", 1e3) if self.table.unit == "ms" else ("images_per_second", 1.0)
        median, low, high = (scale * cell[of][end] for end in ("median", "low", "high"))
        if self.table.unit == "us an image":
            median, low, high = 1e6 / median, 1e6 / high, 1e6 / low
        return Value(median, low, high) if len(cell["visits"]) > 1 else Value(median)

    def picture(self) -> Picture:
        """The chart that the table declares."""
        hint = f"{self.unit}, {'more' if self.table.unit == 'images/s' else 'less'} is better"
        if self.table.chart == "bars":
            return bars(self.table.title, hint, self._bars(), logarithmic=self.table.logarithmic)
        names: dict[float, str] = {cell["at"]: cell["row"] for cell in self.cells}
        if None in names or len(names) < len(self.rows):  # one after the other where a place is not known
            names = {float(number): row for number, row in enumerate(self.rows)}
        series = self._series({row: place for place, row in names.items()})
        if set(names) == {cell["at"] for cell in self.cells}:
            names = {place: written(place) for place in names}
        up = axis((end for each in series for end in each.ends), logarithmic=self.table.logarithmic)
        hint += "; logarithmic scale" * self.table.logarithmic
        return lines(self.table.title, hint, series, names, below=self.table.rows, up=up)

    def _bars(self) -> list[Bar | str]:
        """In the table's order, row by row and column by column; rows that hold one column each are not headed."""
        ordered = sorted(self.cells, key=lambda cell: self.columns.index(cell["column"]))
        rows = [(row, [cell for cell in ordered if cell["row"] == row]) for row in self.rows]
        flat = all(len({cell["column"] for cell in cells}) == 1 for _, cells in rows)
        parts: list[Bar | str] = []
        for row, cells in rows:
            heading = self.row(row)
            if not flat and heading:
                parts.append(heading[:1].upper() + heading[1:])
            before = None
            for cell in cells:
                also = cell["column"] if flat and len(self.columns) > 1 else ""
                first = (heading or cell["column"]) if flat else cell["column"]
                variant, value = ", ".join(part for part in (also, self.variant(cell)) if part), self.value(cell)
                median, low, high = (value.median, value.low, value.high) if value else (None, None, None)
                name = "" if first == before else first
                parts.append(
                    Bar(name, variant, self.css(cell), self._title(cell, value), median, low, high, cell["status"])
                )
                before = first
        return parts

    def _title(self, cell: CellRecord, value: Value | None) -> str:
        return f"{cell['name']}: {figure(value.median)} ({value.interval or ONE_TRIAL}) {self.unit}" if value else ""

    def _series(self, at: Mapping[str, float]) -> list[Series]:
        """In the table's order, without those of which nothing was measured."""
        named: dict[tuple[str, str], dict[float, Point]] = {}
        for cell in self.cells:
            if value := self.value(cell):
                point = Point(value.median, value.low, value.high, self._title(cell, value))
                named.setdefault((cell["column"], self.variant(cell)), {})[at[cell["row"]]] = point
        series = []
        variants = list(dict.fromkeys(variant for _, variant in named))
        for (column, variant), points in named.items():
            name = cut(", ".join(part for part in (column, variant) if part), LONGEST)
            broken = "variant" * (variants.index(variant) > 0) or "again" * (self.colours[column] >= SERIES)
            series.append(Series(name, f"s{self.colours[column] % SERIES + 1}", points, broken))
        return series


def shown_of(suite: Suite, record: Mapping[str, Any]) -> list[Shown]:
    """The suite's tables; a column has the same colour in all of them."""
    columns = list(dict.fromkeys(cell["column"] for cell in record["cells"]))
    colours = {name: number for number, name in enumerate(columns)}
    return [
        Shown(table, [cell for cell in record["cells"] if cell["table"] == table.name], colours)
        for table in suite.tables
    ]


def ranges(cells: Sequence[CellRecord]) -> str:
    """``95% interval``, ``range`` of fewer trials, or both; nothing where no cell had two."""
    trials = [len(cell["visits"]) for cell in cells if len(cell["visits"]) > 1]
    if not trials:
        return ""
    if min(trials) >= ENOUGH:
        return "95% interval"
    return "range" if max(trials) < ENOUGH else f"95% interval, or range of fewer than {ENOUGH} trials"


def setting(key: str, value: Any) -> str:
    """``4 threads``, ``cold``; nothing where it does not matter."""
    return counted(value, "thread") if key == "threads" else value or ""


def spanned(numbers: Sequence[int], noun: str) -> str:
    """``5 trials``, or ``3 to 7 trials``."""
    least, most = min(numbers), max(numbers)
    return counted(most, noun) if least == most else f"{least:,} to {counted(most, noun)}"
