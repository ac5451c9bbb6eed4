"""The speed-ups: each cell's ratio to the baseline with its interval, against 1."""

from strobe.bench.page.page import wide
from strobe.bench.page.scale import Scale
from strobe.compare.page.cells import Cell, Comparison
from strobe.compare.page.rows import ROW, around_one, grid, row, rows
from strobe.compare.page.words import factor, judged, spread_of
from strobe.report.html.drawing import line
from strobe.report.html.pieces import section
from strobe.report.html.text import esc

MOST = 30  # rows
_BEYOND = 1.6  # times the highest ratio, from where on intervals are cut off
_SHAPES = {  # around the middle; a verdict's shape besides its colour
    "faster": "M0-6L6 5L-6 5Z",
    "slower": "M0 6L6-5L-6-5Z",
    "no difference": "M-5-5L5-5L5 5L-5 5Z",
}
_BASELINE = "M0-6L6 0L0 6L-6 0Z"
_OTHER = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z"


def forest(compared: Comparison) -> str:
    """The section; empty where there is no other cell than the baseline to show."""
    known = [cell for cell in compared.measured if cell.speedup and cell is not compared.baseline]
    if not known:
        return ""
    shown, told = compared.chosen([cell for cell in compared.measured if cell.speedup], MOST)
    ends = [
        end
        for cell in shown
        if cell.speedup
        for end in (cell.speedup.low, cell.speedup.median, cell.speedup.high)
        if end is not None
    ]
    middle = [cell.speedup.median for cell in shown if cell.speedup]
    within = [min(max(end, min(middle) / _BEYOND), _BEYOND * max(middle)) for end in ends]
    cut = within != ends
    scale, marks = around_one(within)
    lines = [_row(compared, cell, scale, marks) for cell in shown]
    left = f'<p class="note">{told}</p>' if told else ""
    note = f"How many times as fast as {esc(compared.against or 'the baseline')}"
    if len(ends) > len(middle):
        note += ", with 97% intervals. An interval that holds 1: no difference."
    else:
        note += "; of single runs there are no intervals."
    if cut:
        note += " Intervals that go on beyond the axis are cut off."
    unit = "times as fast" + "; by factors" * scale.logarithmic
    return wide(section("speedup", "Speed-up", note, rows(lines, scale, unit, marks) + left))


def _row(compared: Comparison, cell: Cell, scale: Scale, marks: list[float]) -> str:
    value = cell.speedup
    assert value is not None  # else it is not shown
    verdict = "baseline" if cell is compared.baseline else cell.verdict
    middle, css = ROW / 2, verdict.replace(" ", "-") if verdict in _SHAPES else "undecided"
    parts = [*grid(scale, marks), line(scale.place(1.0), -1, scale.place(1.0), ROW + 1, "one")]
    if value.low is not None and value.high is not None and cell is not compared.baseline:
        low, high = scale.place(value.low), scale.place(value.high)
        parts.append(line(low, middle, high, middle, f"range {css}"))
        ends = [end for end in (low, high) if 0 < end < 1]
        parts += [line(end, middle - 4, end, middle + 4, f"range {css}") for end in ends]
    drawn = _BASELINE if verdict == "baseline" else _SHAPES.get(verdict, _OTHER)
    shape = f'<path class="sign {css}" d="{drawn}"/>'
    parts.append(f'<svg x="{100 * scale.place(value.median):.2f}%" y="{middle:g}" width="1" height="1">{shape}</svg>')
    spread = "" if cell is compared.baseline else spread_of(value)
    said = f"{cell.name}: {factor(value)}{f', {spread}' if spread else ''}, {verdict}"
    figure = f"<b>{factor(value)}</b> {judged(verdict)}<small>{spread}</small>"
    return row(compared, cell, said, parts, figure)
