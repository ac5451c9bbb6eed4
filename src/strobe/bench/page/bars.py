"""Bars: a group for each row of the table, a bar for each of its cells."""

from dataclasses import dataclass

from strobe.bench.harness.wording import figure
from strobe.bench.page.picture import Picture, cut, width_of, words
from strobe.bench.page.scale import Scale, axis, written
from strobe.bench.page.shown import Cell, Shown, Value, state
from strobe.report.html.drawing import anchor_at, label, line, rect, whisker

PITCH, BAR, GROUP = 20, 12, 30  # pixels: from bar to bar, a bar, a group's heading
_TOP, _TALL = 44, 420  # pixels: above the first bar, and from where on the axis is repeated below
_LONGEST = 30  # characters of a name


@dataclass(frozen=True)
class _Line:
    """A line of the picture: a heading, or a cell with its two names."""

    cell: Cell | None
    name: str
    variant: str = ""


def bars(shown: Shown) -> Picture:
    """The picture of a table: names, figures, and bars with their intervals on one axis."""
    lines = _lines(shown)
    values = [value for cell in shown.cells if (value := shown.value(cell))]
    scale = axis(
        (end for value in values for end in (value.low, value.median, value.high)),
        logarithmic=shown.table.logarithmic,
    )
    first = max([width_of(each.name) for each in lines if each.cell] or [0]) + 14
    second = max([width_of(each.variant) for each in lines] or [0])
    end = first + (second + 14 if second else 0) + max([width_of(figure(value.median)) for value in values] + [42])
    base = float(_TOP)
    names, drawn = [], []
    for each in lines:
        if each.cell is None:
            base += GROUP
            names.append(words(0, base - 9, each.name, "group"))
            continue
        middle = base + PITCH / 2
        names += [words(0, middle + 4, each.name), words(first, middle + 4, each.variant, "soft")]
        value = shown.value(each.cell)
        names.append(_told(each.cell, value, end, middle + 4))
        if value:
            drawn += _bar(shown, each.cell, value, scale, middle)
        base += PITCH
    tall = base > _TALL
    hint = f"{shown.unit}, {shown.better}{'; logarithmic scale' * shown.table.logarithmic}"
    names.append(words(0, 14, hint if values else "Nothing was measured.", "soft"))
    scales = _axis(scale, base, tall=tall) if values else []
    height = base + (26 if tall else 8)
    return Picture(f"{shown.table.title}: bars of {hint}", height, names, [*scales, *drawn], left=end + 10, right=14)


def _lines(shown: Shown) -> list[_Line]:
    """In the table's order, row by row and column by column; rows that hold one column each are not headed."""
    ordered = sorted(shown.cells, key=lambda cell: shown.columns.index(cell["column"]))
    rows = [(row, [cell for cell in ordered if cell["row"] == row]) for row in shown.rows]
    flat = all(len({cell["column"] for cell in cells}) == 1 for _, cells in rows)
    found = []
    for row, cells in rows:
        name = shown.row(row)
        if not flat and name:
            found.append(_Line(None, name[:1].upper() + name[1:]))
        before = None
        for cell in cells:
            also = cell["column"] if flat and len(shown.columns) > 1 else ""
            first = (name or cell["column"]) if flat else cell["column"]
            variant = ", ".join(part for part in (also, shown.variant(cell)) if part)
            found.append(_Line(cell, "" if first == before else cut(first, _LONGEST), cut(variant, _LONGEST)))
            before = first
    return found


def _told(cell: Cell, value: Value | None, end: float, base: float) -> str:
    if value:
        return words(end, base, figure(value.median), end=True)
    return words(end, base, state(cell), "failed" if cell["status"] == "failed" else "soft", end=True)


def _bar(shown: Shown, cell: Cell, value: Value, scale: Scale, middle: float) -> list[str]:
    title = f"{cell['name']}: {value.text} {shown.unit}"
    bar = rect(0, middle - BAR / 2, scale.place(value.median), BAR, f"bar {shown.css(cell)}", title)
    interval = whisker(scale.place(value.low), scale.place(value.high), middle) if value.repeated else []
    return [bar, *interval]


def _axis(scale: Scale, bottom: float, *, tall: bool) -> list[str]:
    found = [line(0, _TOP - 4, 0, bottom + 2, "base")]
    for mark in scale.marks():
        place = scale.place(mark)
        found.append(line(place, _TOP - 4, place, bottom + 2, "grid"))
        bases = (_TOP - 10, bottom + 18) if tall else (_TOP - 10,)
        found += [label(place, base, written(mark), "soft", anchor_at(place)) for base in bases]
    return found
