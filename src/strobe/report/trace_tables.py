"""Tables of a page of traces: operators, kernels, and what changed against a baseline; with search, sort and filter."""

import zlib
from collections.abc import Sequence
from urllib.parse import quote

import numpy as np

from strobe.present.charts.svg import meter
from strobe.present.format import cut, duration, figure, percent
from strobe.present.parts import Cell, Part, Row, Section, Table, Text, Words, more
from strobe.traces.compared import changes, mean_of
from strobe.traces.operators import Kernel, Operator
from strobe.traces.rank import RankTrace

MOST_ROWS, MOST_CHANGES = 1000, 200
_LONG = 80  # characters of a name that a link holds as it is


def anchor(kind: str, name: str) -> str:
    """What a link to a row holds: the name, or of a long one its beginning and a number that tells it apart."""
    name = name.encode(errors="replace").decode()  # names of a damaged file may be no text
    short = name if len(name) <= _LONG else f"{name[:40]}~{zlib.crc32(name.encode()):08x}"
    return f"{kind}={short}"


def _named(kind: str, name: str, *small: str) -> Text:
    return Text(name, css="name", small=[one for one in small if one], link=f"#{quote(anchor(kind, name), safe='=:')}")


def _time(microseconds: float, told: str = "") -> Cell:
    return Cell(told or duration(microseconds / 1e6), value=microseconds)


def _number(value: float, told: str = "") -> Cell:
    return Cell(told or f"{value:,}", value=value)


def _share(share: float) -> list[Cell]:
    """As a bar, and in percent."""
    return [Cell(Text(after=meter(share)), "meters"), _number(share, percent(share))]


def operator_table(ranks: Sequence[RankTrace], rows: Sequence[Operator]) -> Section:
    """All operators and ranges; nothing where none were recorded."""
    whole, on_device = _of_steps(ranks), any(row.device for row in rows)
    lines = []
    for row in rows[:MOST_ROWS]:
        shape, calls = row.shapes.most_common(1)[0] if row.shapes else ("", 0)
        others = f"{cut(shape, 120)} in {calls:,} calls" + f", and {len(row.shapes) - 1} others" * (len(row.shapes) > 1)
        cells = [
            _named("operator", row.name, others * bool(shape)),
            *_share((row.device if on_device else row.own) / whole),
            *(_number(row.calls), _time(row.own), _time(row.total)),
            *[_time(row.device)] * on_device,
        ]
        lines.append(Row(cells, anchor=anchor("operator", row.name), kind="range" if row.is_range else "operator"))
    heads: list[Words | Cell] = [
        "Operator",
        Cell("", "meters"),
        "#Share",
        "#Calls",
        "#Own",
        "#Total",
        *["#On the device"] * on_device,
    ]
    by = "what they started on the device" if on_device else "their own time"
    about = f"Share: of the steps' time, by {by}. Own time is without the operators they call."
    return _table("operators", about, heads, lines, len(rows))


def changed(before: Sequence[RankTrace], after: Sequence[RankTrace]) -> Section:
    """What takes more or less time than in the baseline; nothing without one."""
    found = changes(before, after) if before else []
    rows = []
    for change in found[:MOST_CHANGES]:
        why = "calls" if abs(change.by_calls) > abs(change.more) / 2 else "time a call"
        cells = [
            _named(change.kind, change.name, why),
            _time(change.more, f"{'+' if change.more > 0 else '-'}{duration(abs(change.more) / 1e6)}"),
            *(_number(calls, figure(calls)) for calls in change.calls),
            *(_time(each, "" if each else "-") for each in change.each),
        ]
        rows.append(Row(cells, kind=change.kind))
    heads = ("Name", "#A step", "#Calls before", "#Calls now", "#A call before", "#A call now")
    steps = [mean_of(np.concatenate([rank.lengths for rank in ranks])) for ranks in (before, after) if ranks]
    about = (
        f"A step took {duration(steps[0])} in {before[0].columns.path.name}, and takes {duration(steps[1])} now. "
        if rows
        else ""
    )
    about += "Own time of operators, and time of kernels, in a step of one rank; below the name what made most of it."
    table = Table(heads, rows, "operators", "Changes", tall=True, stacked=True, search="changes")
    parts: list[Part] = [table, *more(len(found) - MOST_CHANGES, "names")] if rows else []
    return Section("changes", "Against the baseline", about, parts, wide=True)


def kernel_table(ranks: Sequence[RankTrace], rows: Sequence[Kernel]) -> Section:
    """All kernels, copies and memsets; nothing where no device was used."""
    whole, lines = _of_steps(ranks), []
    for row in rows[:MOST_ROWS]:
        name, _ = row.by.most_common(1)[0] if row.by else ("", 0)
        cells = [
            _named("kernel", row.name, f"from {name}" if name else "", "tensor cores" * row.tensor_cores),
            *_share(row.total / whole),
            *(_number(row.calls), _time(row.total), _time(row.total / row.calls), _time(row.longest)),
            _number(row.occupancy or 0, "-" if row.occupancy is None else percent(row.occupancy)),
        ]
        lines.append(Row(cells, anchor=anchor("kernel", row.name), kind=row.kind))
    heads = ("Kernel", Cell("", "meters"), "#Share", "#Calls", "#Total", "#Mean", "#Longest", "#Occupancy")
    about = "What ran on the device. Share: of the steps' time. Occupancy is the profiler's estimate."
    return _table("kernels", about, heads, lines, len(rows))


def _of_steps(ranks: Sequence[RankTrace]) -> float:
    """Microseconds of all steps of all ranks."""
    return sum(float(rank.lengths.sum()) for rank in ranks) or 1.0


def _table(what: str, about: str, heads: Sequence[Words | Cell], rows: Sequence[Row], count: int) -> Section:
    table = Table(heads, rows, "operators", what.capitalize(), tall=True, stacked=True, search=what)
    parts: list[Part] = [table, *more(count - MOST_ROWS, what)] if rows else []
    return Section(what, what.capitalize(), about, parts, wide=True)
