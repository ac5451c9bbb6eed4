"""The comparison's charts: over batch size and workers, speed-ups, phases, devices; and operators."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from strobe.compare.cells import BATCH, LEARNING_RATE, WORKERS
from strobe.compare.shown import DEVICE, ComparedCell, Comparison, between
from strobe.compare.speeds import ALONE
from strobe.present import parts as kit
from strobe.present.charts.lines import SERIES, Point, Series, lines
from strobe.present.charts.rows import ROW, Stack, grid, on_axis, stacks
from strobe.present.charts.scale import Scale, around_one, axis
from strobe.present.charts.svg import line, rect, svg, tag
from strobe.present.format import Value, counted, cut, duration, figure, milliseconds, times, written
from strobe.report.steps import segments

_MOST_LINES = 8  # of a chart that does not hold all of them
_LONGEST = 30  # characters of a line's name
_FAR = 12.0  # from the lowest to the highest, from which on an axis goes by factors
_MOST = {"knees": 12, "ratios": 30, "phases": 24, "pairs": 24, "operators": 20, "panels": 6}  # rows, and charts
_APART = 8.0  # from the shortest to the longest, from which on phases have two axes
_KNEE = (
    " Rings: the knee, the smallest batch within 5% of the line's best, as measured; a larger one costs memory for "
    "little. In 95% of cases it lies between the sizes that the table names."
)
_SIDES = {"gpu": "the GPU", "cpu": "the CPU"}
_SURE = ("faster", "slower")  # which also a wide interval may show
_SHAPES = {  # around the middle; a verdict's shape besides its colour
    "faster": "M0-6L6 5L-6 5Z",
    "slower": "M0 6L6-5L-6-5Z",
    "no difference": "M-5-5L5-5L5 5L-5 5Z",
}
_OTHER = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z"

_Line = Mapping[float, ComparedCell]  # cells that differ in one setting alone, by its value
# A setting in words and as records have it; keys in which a line's cells differ.
_Over = tuple[str, str, frozenset[str]]
_BATCH: _Over = ("batch size", "batch_size", frozenset({BATCH, *LEARNING_RATE}))
_WORKERS: _Over = ("workers", "num_workers", frozenset({WORKERS}))


def over_batch(compared: Comparison) -> kit.Section:
    """The rate over the batch size, with the knees."""
    knees: list[dict[str, Any]] = compared.record.items("knees")
    rings = {(knee["batch_size"], knee["images_per_second"]) for knee in knees}
    parts = _charts(compared, _BATCH, rings=rings)
    about = "Lines: cells alike in all but the batch size; bars: 95% intervals."
    if knees and parts:
        about += _KNEE
        rows = [
            (
                kit.named(knee["where"]),
                kit.strong(knee["batch_size"]),
                between(knee).partition(",")[0],
                figure(knee["images_per_second"]),
                str(knee["best_batch_size"]),
            )
            for knee in knees[: _MOST["knees"]]
        ]
        heads = ("Knee of", "#Batch size", "#Between", f"#{compared.unit.capitalize()} there", "#Fastest at batch size")
        parts += [kit.Table(heads, rows, "knees", stacked=True), *kit.more(len(knees) - _MOST["knees"], "knees")]
    return kit.Section("batch", "Throughput over batch size", about, parts, wide=True)


def over_workers(compared: Comparison) -> kit.Section:
    """The rate over the number of loader workers."""
    parts = _charts(compared, _WORKERS)
    about = "Lines: cells alike in all but the number of workers that load data; 0: the training process itself loads."
    return kit.Section("workers", "Throughput over workers", about, parts, wide=True)


def _charts(compared: Comparison, over: _Over, *, rings: Collection[tuple[int, float]] = ()) -> list[kit.Part]:
    """A chart of rates, or several where one would hold too many lines; none without a line of two points.

    ``rings``: batch size and rate of the points that get one.
    """
    what, setting, without = over
    curves = _lines(compared, setting, without)
    if not curves:
        return []
    groups, notes = _panels(compared, curves, without)
    kept = [each for _, held in groups for each in held]
    values = [value for each in kept for cell in each.values() if (value := cell.rate)]
    wide = sum(value.low is not None and not value.tells for value in values)
    if wide == len(values):  # the section on speed-ups says so
        return []
    if wide:
        notes.append(f"Without a bar: {counted(wide, 'point')} whose interval is too wide to tell.")
    least, highest = min(value.median for value in values), max(value.median for value in values)
    far = highest / least > _FAR
    hint = f"{compared.unit}, more is better{'; logarithmic scale' * far}"
    names = {place: written(place) for place in sorted({place for each in kept for place in each})}
    keys = compared.varying([_first(each) for each in kept], without)
    if len(kept) == 1:
        keys = [key for key in compared.keys if key not in without]

    def point(cell: ComparedCell, value: Value) -> Point:
        words = f"{figure(value.median)} {compared.unit}" + (f" ({value.interval})" if value.interval else "")
        ring = (cell.record.number("values", "batch_size"), value.median) in rings
        low, high = (value.low, value.high) if value.tells else (None, None)
        return Point(value.median, low, high, f"{cell.name}: {words}{', the knee' * ring}", "knee" * ring)

    colours: dict[str, int] = {}
    drawn: list[kit.Part] = []
    for key, held in groups:
        inner = [other for other in keys if other != key]
        series = []
        for each in held:
            name = _first(each).short(inner) or "all cells"
            css = f"s{colours.setdefault(name, len(colours)) % SERIES + 1}"
            points = {place: point(cell, value) for place, cell in each.items() if (value := cell.rate)}
            series.append(Series(cut(name, _LONGEST), css, points))
        heading = _first(held[0]).short([key]) if key else ""
        title = ", ".join(part for part in (what, heading) if part)
        ends = (end for value in values for end in (value.ends if value.tells else [value.median]))
        picture = lines(title, hint, series, names, below=what, up=axis(ends, logarithmic=far))
        drawn.append(kit.Chart(picture.inline(), heading[:80]))
    return [*([kit.Block(drawn, "panels")] if len(drawn) > 1 else drawn), *kit.note(*notes)]


def _first(cells: _Line) -> ComparedCell:
    return next(iter(cells.values()))


def _lines(compared: Comparison, setting: str, without: Collection[str]) -> list[_Line]:
    """In order of their fastest cells; of two cells at one place the faster one counts."""
    curves: list[_Line] = []
    for group in compared.grouped(without):
        cells: dict[float, ComparedCell] = {}
        for cell in group:
            place = cell.record.number("values", setting)
            if place is not None and cell.rate:
                cells.setdefault(place, cell)
        if len(cells) > 1:
            curves.append(dict(sorted(cells.items())))
    return curves


def _panels(
    compared: Comparison, curves: Sequence[_Line], without: Collection[str]
) -> tuple[list[tuple[str, Sequence[_Line]]], list[str]]:
    """The lines of each chart, with the key that tells the charts apart, if there is one; and what was left out."""
    if len(curves) <= _MOST_LINES:
        return [("", curves)], []
    splits: list[list[tuple[str, Sequence[_Line]]]] = []
    for key in compared.varying([_first(each) for each in curves], without):
        held: dict[str, list[_Line]] = {}
        for each in curves:
            held.setdefault(_first(each).setting(key)[0], []).append(each)
        if len(held) <= _MOST["panels"] and max(map(len, held.values())) <= SERIES:
            splits.append([(key, group) for group in held.values()])
    if splits:
        return min(splits, key=len), []
    order = sorted(curves, key=lambda each: -max(value.median for cell in each.values() if (value := cell.rate)))
    kept = [order[round(number * (len(order) - 1) / (_MOST_LINES - 1))] for number in range(_MOST_LINES)]
    note = f"{_MOST_LINES} of {counted(len(curves), 'line')}: the highest, the lowest, and some evenly between."
    return [("", kept)], [note]


def speedups(compared: Comparison) -> kit.Section:
    """Each cell's ratio to the baseline with its interval; a sentence where no interval tells anything."""
    title, against = "Speed-up", compared.against or "the baseline"
    cells = [cell for cell in compared.measured if cell.speedup and cell.verdict != "not known"]
    clear = [cell for cell in cells if cell.verdict in _SURE or (cell.speedup and cell.speedup.tells)]
    if not cells:
        return kit.Section("speedup", title, "", [])
    if not any(cell.verdict in _SURE for cell in clear):
        why = "all intervals include 1" if clear else "they are too few, or differ too much"
        nothing = f"These runs cannot tell {counted(len(cells), 'cell')} from {against}: {why}."
        return kit.Section(
            "speedup", title, "", [kit.Paragraph(f"{nothing} Train longer, or more often (sweep.repeats).")]
        )
    shown, omitted = compared.chosen(clear, _MOST["ratios"])
    ratios = [(cell, cell.speedup) for cell in shown if cell.speedup]
    scale, marks = around_one(end for _, ratio in ratios for end in ratio.ends)
    rows = [
        kit.Line(
            compared.label(cell),
            _ratio(cell, ratio, scale, marks),
            [kit.Text(times(ratio.median), "b"), cell.judged, kit.Text(ratio.factors, "small")],
            title=cell.name,
        )
        for cell, ratio in ratios
    ]
    about = f"How many times as fast as {against}. The intervals hold for all cells together in 97%."
    left = len(cells) - len(clear)
    dim = f"Not drawn: {counted(left, 'cell')} whose runs are too few, or differ too much, to tell." * bool(left)
    forest = on_axis(rows, scale, marks, "times as fast" + "; by factors" * scale.logarithmic)
    return kit.Section("speedup", title, about, [forest, *kit.note(omitted, dim)], wide=True)


def _ratio(cell: ComparedCell, ratio: Value, scale: Scale, marks: Sequence[float]) -> Markup:
    middle, css = ROW / 2, cell.verdict.replace(" ", "-") if cell.verdict in _SHAPES else "undecided"
    one = scale.place(1.0)
    parts = [*grid(scale, marks), line(one, -1, one, ROW + 1, "one")]
    if ratio.low is not None and ratio.high is not None:
        low, high = scale.place(ratio.low), scale.place(ratio.high)
        parts.append(line(low, middle, high, middle, f"range {css}"))
        parts += [line(end, middle - 4, end, middle + 4, f"range {css}") for end in (low, high)]
    shape = tag("path", class_=f"sign {css}", d=_SHAPES.get(cell.verdict, _OTHER))
    place = f"{100 * scale.place(ratio.median):.2f}%"
    parts.append(tag("svg", [shape], x=place, y=f"{middle:g}", width="1", height="1"))
    spread = f", {ratio.factors}" if ratio.factors else ""
    return svg(ROW, f"{cell.name}: {times(ratio.median)}{spread}, {cell.verdict}", parts)


def phases(compared: Comparison) -> kit.Section:
    """What an image, or the like, costs in each cell, by phase; empty where no step was measured."""
    shown, omitted = compared.chosen([cell for cell in compared.measured if cell.phases], _MOST["phases"])
    title = "Where the time goes"
    if not shown:
        return kit.Section("phases", title, "", [])
    names = list(dict.fromkeys(name for cell in shown for name in cell.phases))
    names = [name for name in names if any(cell.phases.get(name) for cell in shown)]
    known = segments(dict.fromkeys(names, 0.0))
    parts: list[kit.Part] = [kit.Keys([kit.Key(f"key {one.css}", one.name) for one in known])]
    groups = _groups(shown)
    for group in groups:
        longest = max(sum(cell.phases.values()) for cell in group)
        parts += [kit.Heading(f"Up to {duration(longest)} {compared.each}")] * (len(groups) > 1)
        parts.append(
            stacks([Stack(compared.label(cell), cell.name, segments(cell.phases)) for cell in group], compared.each)
        )
    rows = [
        (kit.named(cell.name), *(milliseconds(cell.phases[name]) if name in cell.phases else "" for name in names))
        for cell in shown
    ]
    heads = (f"Milliseconds {compared.each}", *(f"#{one.name}" for one in known))
    parts += [*kit.note(omitted), kit.Block([kit.Table(heads, rows, "plain")], title="As figures")]
    about = (
        f"What {compared.each} costs, the mean over runs, in the order of the table. The host's time, not the GPU's."
    )
    return kit.Section("phases", title, about, parts, wide=True)


def _groups(cells: list[ComparedCell]) -> list[list[ComparedCell]]:
    """The cells, in two parts where one axis would leave nothing to see of the fastest."""
    totals = [sum(cell.phases.values()) for cell in cells]
    if max(totals) < _APART * min(totals):
        return [cells]
    gaps = [min(totals[place:]) / max(totals[:place]) for place in range(1, len(cells))]
    place = gaps.index(max(gaps)) + 1
    return [cells[:place], cells[place:]]


def devices(compared: Comparison) -> kit.Section:
    """CPU against GPU: pairs of cells that are alike in all but the device; empty without a pair."""
    pairs = []
    for group in compared.grouped(DEVICE):  # the fastest first
        cpu = next((cell for cell in group if cell.on_gpu is False), None)
        gpu = next((cell for cell in group if cell.on_gpu), None)
        if cpu and gpu and cpu.rate and gpu.rate:
            pairs.append((gpu.rate.median / cpu.rate.median, cpu, gpu))
    title = "CPU against GPU"
    if not pairs:
        return kit.Section("devices", title, "", [])
    pairs.sort(key=lambda pair: -pair[0])
    ratios, gpus = [ratio for ratio, *_ in pairs], {cell.record.text("gpu") or "the GPU" for *_, cell in pairs}
    keys = compared.varying([cell for _, *pair in pairs for cell in pair], DEVICE)
    rows = [
        (
            cpu.short(keys) or ALONE,
            *(kit.Text(figure(cell.rate.median), small=[cell.rate.interval]) for cell in (cpu, gpu) if cell.rate),
            kit.strong(times(ratio)),
            kit.Text(after=svg(9, "", [rect(0, 0, ratio / ratios[0], 9, "bar s1")], "meter")),
        )
        for ratio, cpu, gpu in pairs[: _MOST["pairs"]]
    ]
    gain = times(ratios[0])
    if len(ratios) > 1:
        gain = f"{times(ratios[-1])} to {gain}"
    middle = f", {times(statistics.median(ratios))} in the median of {counted(len(ratios), 'pair')}"
    who = gpus.pop()[:80] if len(gpus) == 1 else "the GPU"
    heads = ("Cells", f"#CPU, {compared.unit}", f"#GPU, {compared.unit}", "#GPU against CPU", "")
    about = (
        "Pairs of cells alike in all but the device; below each rate its 95% interval. "
        "For an interval of the ratio name one of the cells as --baseline."
    )
    parts = [
        kit.Paragraph(f"On {who} it trains {gain} as fast as on the CPU{middle * (len(ratios) > 1)}."),
        kit.Table(heads, rows, "cells devices"),
        *kit.more(len(pairs) - len(rows), "pairs"),
    ]
    return kit.Section("devices", title, about, parts, wide=True)


def operators(compared: Comparison) -> kit.Section:
    """The operators whose time changed most between two traces; empty where none were compared."""
    record, title = compared.record.mapping("operators"), "Operators that changed most"
    if not record:
        return kit.Section("operators", title, "", [])
    rows = record["rows"][: _MOST["operators"]]
    sides = (("before_us", "s8"), ("after_us", "s1"))
    top = max(row[key] for row in rows for key, _ in sides) or 1.0
    cells: list[tuple[kit.Words | kit.Cell, ...]] = []
    for row in rows:
        bars = [rect(0, 7 * at, row[key] / top, 6, f"bar {css}") for at, (key, css) in enumerate(sides)]
        figures = [duration(row[key] / 1e6) if row[key] else kit.Text("none", "span", "none") for key, _ in sides]
        change = row["change_us"]
        sign, css = ("+", "bad") if change > 0 else ("\u2212", "good") if change < 0 else ("", "none")
        words = kit.Text(f"{sign}{duration(abs(change) / 1e6)}", "b", css)
        cells.append(
            (
                kit.named(row["name"], "code"),
                kit.Cell(kit.Text(after=svg(13, "", bars, "meter")), "meters"),
                *figures,
                words,
            )
        )
    device = _SIDES.get(record["device"], "the device")
    about = f"Own time on {device} for {compared.each}, of one traced run a side; the greatest change first."
    parts = [
        kit.Keys([kit.Key("key s8", f"before: {record['before']}"), kit.Key("key s1", f"after: {record['after']}")]),
        kit.Table(("Operator", kit.Cell("", "meters"), "#Before", "#After", "#Change"), cells, "operators changed"),
        *kit.more(len(record["rows"]) - len(rows), "operators"),
    ]
    return kit.Section("operators", title, about, parts, wide=True)
