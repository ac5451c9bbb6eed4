"""Throughput and memory over batch size and workers: lines of the cells that are alike otherwise."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from strobe.bench.page.lines import Point, Series, curves
from strobe.bench.page.page import wide
from strobe.bench.page.picture import cut
from strobe.bench.page.scale import axis, written
from strobe.bench.page.shown import SERIES
from strobe.compare.cells import LEARNING_RATE
from strobe.compare.page.cells import BATCH_SIZE, WORKERS, Cell, Comparison, Value
from strobe.compare.page.words import value_interval
from strobe.report.html.pieces import more, named, section, table
from strobe.report.html.text import counted, esc, rate

_MOST = 8  # lines of a chart that holds not all of them
_LONGEST = 30  # characters of a line's name
_BEYOND = 1.6  # times the highest and the lowest, from where on intervals are cut off
_FAR = 12.0  # from the lowest to the highest, from which on an axis goes by factors
_KNEES = 12
_RATE, _PEAK = "images/s, more is better", "GB at the peak, less is better"

_Measure = Callable[[Cell], Value | None]


@dataclass(frozen=True)
class _Line:
    """Cells that differ in one setting alone, by its value."""

    cells: Mapping[float, Cell]

    @property
    def first(self) -> Cell:
        return next(iter(self.cells.values()))


def over_batch(compared: Comparison) -> str:
    """Images/s over the batch size, with the knees."""
    knees = [knee for knee in compared.record.items("knees") if isinstance(knee, dict)]
    without = {BATCH_SIZE, *LEARNING_RATE}
    body = _charts(
        compared, what="batch size", setting="batch_size", without=without, measure=_rate, unit=_RATE, knees=knees
    )
    note = "Lines: cells alike in all but the batch size; bars: 95% intervals."
    if body and knees:
        note += (
            " Rings: the knee, the smallest batch within 5% of the line's best; a larger one costs memory for little."
        )
    return wide(section("batch", "Throughput over batch size", note, body and body + _knees(knees)))


def over_workers(compared: Comparison) -> str:
    """Images/s over the number of loader workers."""
    body = _charts(compared, what="workers", setting="num_workers", without={WORKERS}, measure=_rate, unit=_RATE)
    note = "Lines: cells alike in all but the number of workers that load data; 0: the training process itself loads."
    return wide(section("workers", "Throughput over workers", note, body))


def memory(compared: Comparison) -> str:
    """The peaks of host and device memory over the batch size."""
    drawn, without = [], {BATCH_SIZE, *LEARNING_RATE}
    for name, key in (("Host", "rss_peak_bytes"), ("GPU", "device_peak_bytes")):
        found = _charts(
            compared,
            what="batch size",
            setting="batch_size",
            without=without,
            measure=_bytes(key),
            unit=_PEAK,
            panels=1,
        )
        if found:
            drawn.append(f"<div><h3>{name}</h3>{found}</div>")
    body = f'<div class="panels">{"".join(drawn)}</div>' if drawn else ""
    note = "The largest resident memory of the training process on the host, and what was allocated on the GPU."
    return wide(section("memory", "Memory over batch size", note, body))


def _rate(cell: Cell) -> Value | None:
    return cell.rate


def _bytes(key: str) -> _Measure:
    def measure(cell: Cell) -> Value | None:
        value = cell.record.number("memory", key)
        return None if value is None or value <= 0 else Value(value / 1e9, None, None)

    return measure


def _charts(
    compared: Comparison,
    *,
    what: str,
    setting: str,
    without: Collection[str],
    measure: _Measure,
    unit: str,
    knees: Sequence[Mapping[str, object]] = (),
    panels: int = 6,
) -> str:
    """A chart, or several where one would hold too many lines; empty without a line of two points."""
    lines = _lines(compared, setting, without, measure)
    if not lines:
        return ""
    groups, told = _panels(compared, lines, without, measure, panels)
    kept = [line for _, found in groups for line in found]
    values = [value for line in kept for cell in line.cells.values() if (value := measure(cell))]
    least, highest = min(value.median for value in values), max(value.median for value in values)
    far = highest / least > _FAR
    ends = [end for value in values for end in (value.low, value.median, value.high) if end is not None]
    within = [min(max(end, least / _BEYOND if far else 0.0), _BEYOND * highest) for end in ends]
    if within != ends:
        told += " Intervals that go on beyond the axis are cut off."
    up = axis(within, logarithmic=far)
    places = sorted({place for line in kept for place in line.cells})
    names = {place: written(place) for place in places}
    keys = compared.varying((line.first for line in kept), without)
    if len(kept) == 1:
        keys = [key for key in compared.keys if key not in without]
    colours: dict[str, int] = {}
    drawn = []
    for key, found in groups:
        inner = [other for other in keys if other != key]
        series = []
        for line in found:
            name = line.first.short(inner) or "all cells"
            css = f"s{colours.setdefault(name, len(colours)) % SERIES + 1}"
            points = {place: _point(cell, measure, unit, knees) for place, cell in line.cells.items()}
            series.append(Series(cut(name, _LONGEST), css, points))
        heading = found[0].first.short([key]) if key else ""
        hint = f"{unit}{'; logarithmic scale' * far}"
        picture = curves(", ".join(part for part in (what, heading) if part), hint, series, names, below=what, up=up)
        drawn.append(f"<figure>{f'<h3>{esc(heading, 80)}</h3>' if heading else ''}{picture.inline()}</figure>")
    note = f'<p class="note">{told}</p>' if told else ""
    return f'<div class="panels">{"".join(drawn)}</div>{note}' if len(drawn) > 1 else drawn[0] + note


def _lines(compared: Comparison, setting: str, without: Collection[str], measure: _Measure) -> list[_Line]:
    """In order of their fastest cells; of two cells at one place the faster one counts."""
    found = []
    for group in compared.grouped(without):
        cells: dict[float, Cell] = {}
        for cell in group:
            place = cell.record.number("values", setting)
            if place is not None and place >= 0 and measure(cell):
                cells.setdefault(place, cell)
        if len(cells) > 1:
            found.append(_Line(dict(sorted(cells.items()))))
    return found


def _panels(
    compared: Comparison, lines: Sequence[_Line], without: Collection[str], measure: _Measure, panels: int
) -> tuple[list[tuple[str, list[_Line]]], str]:
    """The lines of each chart, with the key that tells the charts apart, if there is one; and what was left out."""
    if len(lines) <= _MOST:
        return [("", list(lines))], ""
    splits: list[tuple[str, list[list[_Line]]]] = []
    for key in compared.varying((line.first for line in lines), without):
        held: dict[str, list[_Line]] = {}
        for line in lines:
            held.setdefault(line.first.setting(key)[0], []).append(line)
        if len(held) <= panels and max(map(len, held.values())) <= SERIES:
            splits.append((key, list(held.values())))
    if splits:
        key, groups = min(splits, key=lambda split: len(split[1]))
        return [(key, group) for group in groups], ""
    order = sorted(
        lines, key=lambda line: -max(value.median for cell in line.cells.values() if (value := measure(cell)))
    )
    step = (len(order) - 1) / (_MOST - 1)
    kept = [order[round(number * step)] for number in range(_MOST)]
    return [("", kept)], f"{_MOST} of {counted(len(lines), 'line')}: the highest, the lowest, and some evenly between."


def _point(cell: Cell, measure: _Measure, unit: str, knees: Sequence[Mapping[str, object]]) -> Point:
    value = measure(cell)
    assert value is not None  # else the cell is not on the line
    spread = value_interval(value, rate)
    told = f"{rate(value.median)} {unit.partition(',')[0]}" + (f" ({spread})" if spread else "")
    at = cell.record.number("values", "batch_size")
    knee = any(at == one.get("batch_size") and _same(value.median, one.get("images_per_second")) for one in knees)
    return Point(value.median, value.low, value.high, f"{cell.name}: {told}{', the knee' * knee}", "knee" * knee)


def _same(one: float, other: object) -> bool:
    return isinstance(other, (int, float)) and math.isclose(one, other, rel_tol=1e-6)


def _knees(knees: Sequence[Mapping[str, object]]) -> str:
    """The knees in words."""
    rows = []
    for knee in knees[:_KNEES]:
        much = knee.get("images_per_second")
        figure = rate(float(much)) if isinstance(much, (int, float)) else ""
        best = knee.get("best_batch_size")
        rows.append(
            (named(knee.get("where") or "all cells"), f"<b>{esc(knee.get('batch_size'))}</b>", figure, esc(best))
        )
    found = (
        table(("Knee of", "#Batch size", "#Images/s there", "#Fastest at batch size"), rows, "knees") if rows else ""
    )
    return found + more(len(knees) - _KNEES, "knees")
