"""Rows that share an axis: a name, a drawing, a figure; on a phone the drawing moves below its name."""

import math
from collections.abc import Iterable, Sequence

from strobe.bench.page.scale import Scale, written
from strobe.compare.page.cells import Cell, Comparison
from strobe.report.html.drawing import anchor_at, label, line, svg, ticks
from strobe.report.html.text import esc

ROW = 24  # pixels
_FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_FINER = (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5)
_FAR = 4.0  # from the least to the most, from which on factors are drawn by factors


def row(compared: Comparison, cell: Cell, said: str, parts: Sequence[str], figure: str, *, css: str = "") -> str:
    """A cell's row: ``figure`` is HTML, ``said`` is for those who cannot see the drawing."""
    special = (("fastest", cell is compared.best), ("baseline", cell is compared.baseline))
    also = "".join(f" <small>{words}</small>" for words, true in special if true)
    name = esc(cell.short(compared.keys) or cell.name)
    who = f'<span class="name" title="{esc(cell.name, 2000)}">{name}{also}</span>'
    return f'<div class="rate {css}"><p class="who">{who}</p>{svg(ROW, said, parts)}<p class="much">{figure}</p></div>'


def rows(lines: Iterable[str], scale: Scale, unit: str, marks: Sequence[float]) -> str:
    """Rows between two axes."""
    top, bottom = (_axis(scale, unit, marks, below=below) for below in (False, True))
    return f'<figure class="bracket compared">{top}{"".join(lines)}{bottom}</figure>'


def grid(scale: Scale, marks: Sequence[float]) -> list[str]:
    """The axis's marks, as lines behind a row."""
    return [line(scale.place(mark), -1, scale.place(mark), ROW + 1, "grid") for mark in marks]


def around_one(values: Iterable[float]) -> tuple[Scale, list[float]]:
    """An axis for ratios that holds 1, and its round numbers."""
    known = [value for value in values if 0 < value < math.inf]
    low, high = min([1.0, *known]), max([1.0, *known])
    if high / low > _FAR:
        low, high = max(low / 1.15, 1e-3), min(high * 1.15, 1e3)
        marks = [mark for mark in _FACTORS if low <= mark <= high]
        if len(marks) < 4:
            marks = [mark for mark in _FINER if low <= mark <= high]
        return Scale(low, high, logarithmic=True), marks
    room = max(0.06 * (high - low), 0.01)
    low, high = low - room, high + room
    steps = ticks(high - low, 6)
    step = steps[1] if len(steps) > 1 else high - low
    marks = [1 + number * step for number in range(-20, 21)]
    return Scale(low, high), [round(mark, 9) for mark in marks if low <= mark <= high]


def _axis(scale: Scale, unit: str, marks: Sequence[float], *, below: bool) -> str:
    parts = []
    for mark in marks:
        share = scale.place(mark)
        ends, base = ((0, 5), 18) if below else ((15, 20), 11)
        parts += [
            line(share, ends[0], share, ends[1], "tick"),
            label(share, base, written(mark), "axis", anchor_at(share)),
        ]
    scales = svg(20, unit, parts)
    return f'<div class="rate axis"><p class="who"></p>{scales}<p class="much"><small>{esc(unit)}</small></p></div>'
