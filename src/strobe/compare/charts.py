"""The comparison's charts: over batch size and workers, speed-ups, phases, devices, operators."""

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence

from strobe.compare.cells import LEARNING_RATE
from strobe.compare.shown import BATCH_SIZE, DEVICE, WORKERS, Cell, Comparison, Value
from strobe.present.charts.lines import SERIES, Point, Series, lines
from strobe.present.charts.rows import Ratio, Segment, Stack, forest, stacks
from strobe.present.charts.scale import axis
from strobe.present.charts.svg import rect, svg
from strobe.present.format import counted, cut, duration, figure, milliseconds, times, written
from strobe.present.parts import (
    Block,
    Chart,
    Heading,
    Key,
    Keys,
    Paragraph,
    Part,
    Section,
    Table,
    Text,
    Words,
    more,
    named,
    note,
    strong,
)
from strobe.records.run import Record, as_number

_MOST_LINES = 8  # of a chart that does not hold all of them
_LONGEST = 30  # characters of a line's name
_BEYOND = 1.6  # times the highest and the lowest, from where on intervals are cut off
_FAR = 12.0  # from the lowest to the highest, from which on an axis goes by factors
_MOST = {"knees": 12, "ratios": 30, "phases": 24, "pairs": 24, "operators": 20}  # rows
_APART = 8.0  # from the shortest to the longest, from which on phases have two axes
_RATE, _PEAK = "images/s, more is better", "GB at the peak, less is better"
_KNEE = " Rings: the knee, the smallest batch within 5% of the line's best; a larger one costs memory for little."
_SIDES = {"gpu": "the GPU", "cuda": "the GPU", "cpu": "the CPU"}

_Measure = Callable[[Cell], Value | None]
_Line = Mapping[float, Cell]  # cells that differ in one setting alone, by its value
_Knee = Mapping[str, object]


def over_batch(compared: Comparison) -> Section:
    """Images/s over the batch size, with the knees."""
    knees = [knee for knee in compared.record.items("knees") if isinstance(knee, dict)]
    parts = _charts(compared, ("batch size", "batch_size"), {BATCH_SIZE, *LEARNING_RATE}, _rate, _RATE, knees=knees)
    about = "Lines: cells alike in all but the batch size; bars: 95% intervals."
    if knees and parts:
        about += _KNEE
        rows = []
        for knee in knees[: _MOST["knees"]]:
            there, best = as_number(knee.get("images_per_second")), knee.get("best_batch_size")
            much = "" if there is None else figure(there)
            rows.append((named(knee.get("where") or "all cells"), strong(knee.get("batch_size")), much, str(best)))
        heads = ("Knee of", "#Batch size", "#Images/s there", "#Fastest at batch size")
        parts += [Table(heads, rows, "knees"), *more(len(knees) - _MOST["knees"], "knees")]
    return Section("batch", "Throughput over batch size", about, parts, wide=True)


def over_workers(compared: Comparison) -> Section:
    """Images/s over the number of loader workers."""
    parts = _charts(compared, ("workers", "num_workers"), {WORKERS}, _rate, _RATE)
    about = "Lines: cells alike in all but the number of workers that load data; 0: the training process itself loads."
    return Section("workers", "Throughput over workers", about, parts, wide=True)


def memory(compared: Comparison) -> Section:
    """The peaks of host and device memory over the batch size."""
    drawn: list[Part] = []
    for name, key in (("Host", "rss_peak_bytes"), ("GPU", "device_peak_bytes")):

        def measure(cell: Cell, key: str = key) -> Value | None:
            value = cell.record.number("memory", key)
            return None if value is None or value <= 0 else Value(value / 1e9, None, None)

        without = {BATCH_SIZE, *LEARNING_RATE}
        if found := _charts(compared, ("batch size", "batch_size"), without, measure, _PEAK, panels=1):
            drawn.append(Block([Heading(name), *found]))
    about = "The largest resident memory of the training process on the host, and what was allocated on the GPU."
    return Section("memory", "Memory over batch size", about, [Block(drawn, "panels")] if drawn else [], wide=True)


def _rate(cell: Cell) -> Value | None:
    return cell.rate


def _charts(
    compared: Comparison,
    over: tuple[str, str],
    without: Collection[str],
    measure: _Measure,
    unit: str,
    *,
    knees: Sequence[_Knee] = (),
    panels: int = 6,
) -> list[Part]:
    """A chart, or several where one would hold too many lines; none without a line of two points.

    Args:
        compared: All cells.
        over: The setting along the axis, in words and as records have it.
        without: Keys in which the cells of a line may differ.
        measure: What is drawn of a cell.
        unit: Of that.
        knees: Points with a ring.
        panels: How many charts there may be.
    """
    what, setting = over
    found = _lines(compared, setting, without, measure)
    if not found:
        return []
    groups, told = _panels(compared, found, without, measure, panels)
    kept = [each for _, held in groups for each in held]
    values = [value for each in kept for cell in each.values() if (value := measure(cell))]
    least, highest = min(value.median for value in values), max(value.median for value in values)
    far = highest / least > _FAR
    ends = [end for value in values for end in value.ends]
    within = [min(max(end, least / _BEYOND if far else 0.0), _BEYOND * highest) for end in ends]
    if within != ends:
        told.append("Intervals that go on beyond the axis are cut off.")
    names = {place: written(place) for place in sorted({place for each in kept for place in each})}
    keys = compared.varying((_first(each) for each in kept), without)
    if len(kept) == 1:
        keys = [key for key in compared.keys if key not in without]
    colours: dict[str, int] = {}
    drawn: list[Part] = []
    for key, held in groups:
        inner = [other for other in keys if other != key]
        series = []
        for each in held:
            name = _first(each).short(inner) or "all cells"
            css = f"s{colours.setdefault(name, len(colours)) % SERIES + 1}"
            points = {place: _point(cell, measure, unit, knees) for place, cell in each.items()}
            series.append(Series(cut(name, _LONGEST), css, points))
        heading = _first(held[0]).short([key]) if key else ""
        title = ", ".join(part for part in (what, heading) if part)
        up = axis(within, logarithmic=far)
        picture = lines(title, f"{unit}{'; logarithmic scale' * far}", series, names, below=what, up=up)
        drawn.append(Chart(picture.inline(), heading[:80]))
    return [*([Block(drawn, "panels")] if len(drawn) > 1 else drawn), *note(*told)]


def _first(cells: _Line) -> Cell:
    return next(iter(cells.values()))


def _lines(compared: Comparison, setting: str, without: Collection[str], measure: _Measure) -> list[_Line]:
    """In order of their fastest cells; of two cells at one place the faster one counts."""
    found: list[_Line] = []
    for group in compared.grouped(without):
        cells: dict[float, Cell] = {}
        for cell in group:
            place = cell.record.number("values", setting)
            if place is not None and place >= 0 and measure(cell):
                cells.setdefault(place, cell)
        if len(cells) > 1:
            found.append(dict(sorted(cells.items())))
    return found


def _panels(
    compared: Comparison, found: Sequence[_Line], without: Collection[str], measure: _Measure, panels: int
) -> tuple[list[tuple[str, Sequence[_Line]]], list[str]]:
    """The lines of each chart, with the key that tells the charts apart, if there is one; and what was left out."""
    if len(found) <= _MOST_LINES:
        return [("", found)], []
    splits: list[tuple[str, list[list[_Line]]]] = []
    for key in compared.varying((_first(each) for each in found), without):
        held: dict[str, list[_Line]] = {}
        for each in found:
            held.setdefault(_first(each).setting(key)[0], []).append(each)
        if len(held) <= panels and max(map(len, held.values())) <= SERIES:
            splits.append((key, list(held.values())))
    if splits:
        key, groups = min(splits, key=lambda split: len(split[1]))
        return [(key, group) for group in groups], []
    order = sorted(found, key=lambda each: -max(value.median for cell in each.values() if (value := measure(cell))))
    kept = [order[round(number * (len(order) - 1) / (_MOST_LINES - 1))] for number in range(_MOST_LINES)]
    told = f"{_MOST_LINES} of {counted(len(found), 'line')}: the highest, the lowest, and some evenly between."
    return [("", kept)], [told]


def _point(cell: Cell, measure: _Measure, unit: str, knees: Sequence[_Knee]) -> Point:
    value = measure(cell)
    assert value is not None  # else the cell is not on the line
    told = f"{figure(value.median)} {unit.partition(',')[0]}" + (f" ({value.interval})" if value.interval else "")
    at = cell.record.number("values", "batch_size")
    knee = any(at == one.get("batch_size") and _same(value.median, one.get("images_per_second")) for one in knees)
    return Point(value.median, value.low, value.high, f"{cell.name}: {told}{', the knee' * knee}", "knee" * knee)


def _same(one: float, other: object) -> bool:
    return isinstance(other, int | float) and math.isclose(one, other, rel_tol=1e-6)


def speedups(compared: Comparison) -> Section:
    """Each cell's ratio to the baseline with its interval; empty without another cell than the baseline."""
    known = [cell for cell in compared.measured if cell.speedup]
    shown, told = compared.chosen(known, _MOST["ratios"])
    if all(cell is compared.baseline for cell in known):
        return Section("speedup", "Speed-up", "", [])
    rows, cut_off = forest([_ratio(compared, cell, cell.speedup) for cell in shown if cell.speedup])
    about = f"How many times as fast as {compared.against or 'the baseline'}"
    if any(cell.speedup and cell.speedup.interval for cell in shown):
        about += ", with 97% intervals. An interval that holds 1: no difference."
    else:
        about += "; of single runs there are no intervals."
    about += " Intervals that go on beyond the axis are cut off." * cut_off
    return Section("speedup", "Speed-up", about, [rows, *note(told)], wide=True)


def _ratio(compared: Comparison, cell: Cell, value: Value) -> Ratio:
    alone = cell is compared.baseline
    spread, verdict = "" if alone else value.factors, "baseline" if alone else cell.verdict
    said = f"{cell.name}: {times(value.median)}{f', {spread}' if spread else ''}, {verdict}"
    ends = (None, None) if alone else (value.low, value.high)
    told = [Text(times(value.median), "b"), cell.judged, Text(spread, "small")]
    return Ratio(compared.label(cell), cell.name, verdict, value.median, *ends, said, told)


def phases(compared: Comparison) -> Section:
    """What an image costs in each cell, by phase; empty where no step was measured."""
    shown, told = compared.chosen([cell for cell in compared.measured if cell.phases], _MOST["phases"])
    title = "Where the time goes"
    if not shown:
        return Section("phases", title, "", [])
    names = list(dict.fromkeys(name for cell in shown for name in cell.phases))
    names = [name for name in names if any(cell.phases.get(name) for cell in shown)]
    parts: list[Part] = [Keys([Key(f"key {_css(name)}", _words(name)) for name in names])]
    groups = _groups(shown)
    for group in groups:
        longest = max(sum(cell.phases.values()) for cell in group)
        parts += [Heading(f"Up to {duration(longest)} an image")] * (len(groups) > 1)
        parts.append(stacks([Stack(compared.label(cell), cell.name, _segments(cell)) for cell in group]))
    rows = [
        (named(cell.name), *(milliseconds(cell.phases[name]) if name in cell.phases else "" for name in names))
        for cell in shown
    ]
    heads = ("Milliseconds an image", *(f"#{_words(name)}" for name in names))
    parts += [*note(told), Block([Table(heads, rows, "plain")], title="As figures")]
    about = "What an image costs, the mean over runs, in order of speed. The host's time, not that of a GPU meanwhile."
    return Section("phases", title, about, parts, wide=True)


def _segments(cell: Cell) -> list[Segment]:
    return [Segment(_words(name), _css(name), seconds) for name, seconds in cell.phases.items()]


def _groups(cells: list[Cell]) -> list[list[Cell]]:
    """The cells, in two parts where one axis would leave nothing to see of the fastest."""
    totals = [sum(cell.phases.values()) for cell in cells]
    if max(totals) < _APART * min(totals):
        return [cells]
    gaps = [min(totals[place:]) / max(totals[:place]) for place in range(1, len(cells))]
    place = gaps.index(max(gaps)) + 1
    return [cells[:place], cells[place:]]


def _css(name: str) -> str:
    return "idle" if name == "between" else name


def _words(name: str) -> str:
    return "between steps" if name == "between" else name.replace("_", " ")


def devices(compared: Comparison) -> Section:
    """CPU against GPU: pairs of cells that are alike in all but the device; empty without a pair."""
    found = []
    for group in compared.grouped(DEVICE):  # the fastest first
        cpu = next((cell for cell in group if cell.on_gpu is False), None)
        gpu = next((cell for cell in group if cell.on_gpu), None)
        if cpu and gpu and cpu.rate and gpu.rate:
            found.append((gpu.rate.median / cpu.rate.median, cpu, gpu))
    found.sort(key=lambda pair: -pair[0])
    keys = compared.varying([cell for _, *pair in found for cell in pair], DEVICE)
    rows = [
        (
            cpu.short(keys) or "all else alike",
            *(Text(figure(cell.rate.median), small=[cell.rate.interval]) for cell in (cpu, gpu) if cell.rate),
            strong(times(ratio)),
            Text(after=svg(9, "", [rect(0, 0, ratio / found[0][0], 9, "bar s1")], "meter")),
        )
        for ratio, cpu, gpu in found[: _MOST["pairs"]]
    ]
    heads = ("Cells", "#CPU, images/s", "#GPU, images/s", "#GPU against CPU", "")
    about = (
        "Pairs of cells alike in all but the device; small below a figure: its 95% interval. "
        "The ratio has neither interval nor verdict here; for those name one of the cells as --baseline."
    )
    parts: list[Part] = [Table(heads, rows, "cells devices"), *more(len(found) - len(rows), "pairs")]
    told = [Paragraph(_gain([ratio for ratio, *_ in found], [gpu for *_, gpu in found]))] if found else []
    return Section("devices", "CPU against GPU", about, [*told, *parts] if found else [], wide=True)


def _gain(ratios: Sequence[float], cells: Sequence[Cell]) -> str:
    gpus = list(dict.fromkeys(cell.record.text("gpu") or "the GPU" for cell in cells))
    who = gpus[0][:80] if len(gpus) == 1 else "the GPU"
    if len(ratios) == 1:
        return f"On {who} it trains {times(ratios[0])} as fast as on the CPU."
    spread = f"{times(min(ratios))} to {times(max(ratios))} as fast as on the CPU"
    middle = f"{times(statistics.median(ratios))} in the median of {counted(len(ratios), 'pair')}"
    return f"On {who} it trains {spread}, {middle}."


def operators(compared: Comparison) -> Section:
    """The operators whose time changed most between two traces; empty where none were compared."""
    record, title = compared.record, "Operators that changed most"
    rows = [Record(row) for row in record.items("operators", "rows") if isinstance(row, dict)]
    if not rows:
        return Section("operators", title, "", [])
    sides = (("before_us", "s8"), ("after_us", "s1"))
    top = max([row.number(key) or 0.0 for row in rows[: _MOST["operators"]] for key, _ in sides]) or 1.0
    lines_of: list[tuple[Words, ...]] = []
    for row in rows[: _MOST["operators"]]:
        known = [(row.number(key), css) for key, css in sides]
        bars = [rect(0, 7 * place, (value or 0.0) / top, 6, f"bar {css}") for place, (value, css) in enumerate(known)]
        figures = [duration(value / 1e6) if value else Text("none", "span", "none") for value, _ in known]
        change = row.number("change_us")
        if change is None:
            change = (known[1][0] or 0.0) - (known[0][0] or 0.0)
        sign, css = ("+", "bad") if change > 0 else ("\u2212", "good") if change < 0 else ("", "none")
        told = Text(f"{sign}{duration(abs(change) / 1e6)}", "b", css)
        lines_of.append(
            (named(row.text("name") or "unnamed", "code"), Text(after=svg(13, "", bars, "meter")), *figures, told)
        )
    before, after = (record.text("operators", key) or "unknown" for key in ("before", "after"))
    device = _SIDES.get(record.text("operators", "device") or "", "the device")
    about = f"Time of their own on {device} for each image, of one traced run a side; the greatest change first."
    parts = [
        Keys([Key("key s8", f"before: {before}"), Key("key s1", f"after: {after}")]),
        Table(("Operator", "", "#Before", "#After", "#Change"), lines_of, "operators changed"),
        *more(len(rows) - _MOST["operators"], "operators"),
    ]
    return Section("operators", title, about, parts, wide=True)
