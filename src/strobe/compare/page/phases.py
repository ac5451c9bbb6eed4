"""The phases of a step side by side: what an image costs in each cell."""

from strobe.bench.page.page import wide
from strobe.bench.page.scale import Scale
from strobe.compare.page.cells import Cell, Comparison
from strobe.compare.page.rows import ROW, grid, row, rows
from strobe.report.html.drawing import label, rect
from strobe.report.html.pieces import named, section, table
from strobe.report.html.text import duration, esc, milliseconds, percent

MOST = 24  # rows
_FAR = 8.0  # from the shortest to the longest, from which on they have two axes
_WIDE = 0.08  # share of a row from which on a figure fits


def phases(compared: Comparison) -> str:
    """The section; empty where no step was measured."""
    known = [cell for cell in compared.measured if cell.phases]
    shown, told = compared.chosen(known, MOST)
    if not shown:
        return ""
    names = list(dict.fromkeys(name for cell in shown for name in cell.phases))
    names = [name for name in names if any(cell.phases.get(name) for cell in shown)]
    keys = "".join(f'<li><i class="key {_css(name)}"></i><span>{_words(name)}</span></li>' for name in names)
    left = f'<p class="note">{told}</p>' if told else ""
    groups = _groups(shown)
    bars = "".join(_bars(compared, group, heading=len(groups) > 1) for group in groups)
    body = f'<ul class="keys">{keys}</ul>{bars}{left}{_figures(shown, names)}'
    note = "What an image costs, the mean over runs, in order of speed. The host's time, not that of a GPU meanwhile."
    return wide(section("phases", "Where the time goes", note, body))


def _groups(cells: list[Cell]) -> list[list[Cell]]:
    """The cells, in two parts where one axis would leave nothing to see of the fastest."""
    totals = [sum(cell.phases.values()) for cell in cells]
    if max(totals) < _FAR * min(totals):
        return [cells]
    gaps = [min(totals[place:]) / max(totals[:place]) for place in range(1, len(cells))]
    place = gaps.index(max(gaps)) + 1
    return [cells[:place], cells[place:]]


def _bars(compared: Comparison, cells: list[Cell], *, heading: bool) -> str:
    longest = max(sum(cell.phases.values()) for cell in cells)
    per, unit = (1e6, "µs") if longest < 1e-3 else (1e3, "ms")
    scale = Scale(0.0, per * longest)
    marks = scale.marks(6)
    lines = [_row(compared, cell, scale, marks, per) for cell in cells]
    title = f"<h3>Up to {duration(longest)} an image</h3>" if heading else ""
    return title + rows(lines, scale, f"{unit} an image", marks)


def _row(compared: Comparison, cell: Cell, scale: Scale, marks: list[float], per: float) -> str:
    parts, start, total = grid(scale, marks), 0.0, sum(cell.phases.values())
    for name, value in cell.phases.items():
        share = per * value / scale.end
        told = f"{_words(name)}: {duration(value)} an image, {percent(value / total)}"
        parts.append(rect(start, 3, share, ROW - 6, f"fill {_css(name)}", told))
        if share >= _WIDE:
            parts.append(
                label(start + share / 2, ROW / 2 + 4, milliseconds(value * per / 1e3), f"on {_css(name)}", "middle")
            )
        start += share
    said = ", ".join(f"{_words(name)} {percent(value / total)}" for name, value in cell.phases.items() if value)
    figure = f"<b>{duration(total)}</b>"
    return row(compared, cell, f"{cell.name}: {duration(total)} an image; {said}", parts, figure, css="stack")


def _figures(shown: list[Cell], names: list[str]) -> str:
    """The same as figures, for those who want or need them so."""
    rows_of = [
        (named(cell.name), *(milliseconds(cell.phases[name]) if name in cell.phases else "" for name in names))
        for cell in shown
    ]
    heads = ("Milliseconds an image", *(f"#{_words(name)}" for name in names))
    return f"<details><summary>As figures</summary>{table(heads, rows_of, 'plain')}</details>"


def _css(name: str) -> str:
    return "idle" if name == "between" else name


def _words(name: str) -> str:
    return "between steps" if name == "between" else esc(name.replace("_", " "))
