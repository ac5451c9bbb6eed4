"""Rows that share an axis, and stacked parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from strobe.present.charts.scale import Scale
from strobe.present.charts.svg import anchor_at, label, line, rect, svg
from strobe.present.format import duration, milliseconds, percent, written
from strobe.present.parts import Chart, Line, Rows, Text, Words

ROW = 24  # pixels
FEW = 8  # rows, above which an axis below them is enough
BAR = 44
_WIDE = 0.09  # share of a bar from which on a figure fits, on a phone too


@dataclass(frozen=True)
class Segment:
    """A part of a stacked bar; ``css``: of its colour."""

    name: str
    css: str
    seconds: float


@dataclass(frozen=True)
class Stack:
    """A row of stacked parts."""

    name: Words
    title: str
    segments: Sequence[Segment]

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return sum(one.seconds for one in self.segments)


def stacks(rows: Sequence[Stack], of: str = "an image") -> Rows:
    """Rows of stacked parts on one axis of milliseconds, or of microseconds where that reads better."""
    longest = max(row.total for row in rows)
    per, unit = (1e6, "µs") if longest < 1e-3 else (1e3, "ms")
    scale = Scale(0.0, per * longest)
    marks = scale.marks(6)

    def in_unit(one: Segment) -> str:
        return milliseconds(one.seconds * per / 1e3)

    lines = []
    for row in rows:
        told = ", ".join(f"{one.name} {percent(one.seconds / row.total)}" for one in row.segments if one.seconds)
        parts = _stacked(row.segments, row.total, longest, (3, ROW - 6), in_unit, f" {of}")
        drawing = svg(ROW, f"{row.title}: {duration(row.total)} {of}; {told}", [*grid(scale, marks), *parts])
        lines.append(Line(row.name, drawing, Text(duration(row.total), "b"), "stack", row.title))
    return on_axis(lines, scale, marks, f"{unit} {of}")


def stacked(title: str, segments: Sequence[Segment], total: float, widest: float) -> Chart:
    """One stacked bar of seconds, on a scale that ends at ``widest``, with a legend that holds all figures."""

    def share(one: Segment) -> str:
        return percent(one.seconds / total)

    legend = [
        {"css": one.css, "none": "none" * (one.seconds == 0), "name": one.name, "share": share(one)}
        | {"text": milliseconds(one.seconds), "unit": "ms"}
        for one in segments
    ]
    told = ", ".join(f"{one.name} {share(one)}" for one in segments)
    drawing = svg(
        BAR, f"{title} step of {duration(total)}: {told}", _stacked(segments, total, widest, (0, BAR), share), "stack"
    )
    heading = Text(title, small=[f" {duration(total)} a step"]) if title else ""
    return Chart(drawing, heading, legend=legend)


def on_axis(lines: Sequence[Line], scale: Scale, marks: Sequence[float], unit: str) -> Rows:
    """Rows on an axis, or between two where they are many, as comparisons have them: with room for long names."""
    above = axis(scale, marks, below=False) if len(lines) > FEW else ""
    return Rows(lines, axis(scale, marks), unit, above, "compared")


def _stacked(  # noqa: PLR0917
    segments: Sequence[Segment],
    total: float,
    widest: float,
    place: tuple[float, float],
    written_on: Callable[[Segment], str],
    of: str = "",
) -> list[Markup]:
    """Parts side by side, ``place`` from the top and so high, each with its figure where that fits."""
    (top, height), start, drawn = place, 0.0, []
    for one in segments:
        share = one.seconds / widest
        title = f"{one.name}: {duration(one.seconds)}{of}, {percent(one.seconds / total)}"
        drawn.append(rect(start, top, share, height, f"fill {one.css}", title))
        if share >= _WIDE:
            base = top + height / 2 + (5 if height > ROW else 4)
            drawn.append(label(start + share / 2, base, written_on(one), f"on {one.css}", "middle"))
        start += share
    return drawn


def grid(scale: Scale, marks: Sequence[float]) -> list[Markup]:
    """The marks as lines behind a row."""
    return [line(scale.place(mark), -1, scale.place(mark), ROW + 1, "grid") for mark in marks]


def axis(scale: Scale, marks: Sequence[float], *, below: bool = True) -> Markup:
    """The marks with their numbers, for below or above the rows."""
    (start, end), base = ((0, 5), 18) if below else ((15, 20), 11)
    parts = []
    for mark in marks:
        share = scale.place(mark)
        parts += [line(share, start, share, end, "tick"), label(share, base, written(mark), "axis", anchor_at(share))]
    return svg(20, "", parts)
