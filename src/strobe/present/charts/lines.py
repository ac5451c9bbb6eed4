"""Lines: values over settings, each with its interval, and each line named where it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from markupsafe import Markup

from strobe.present.charts.scale import Scale, along
from strobe.present.charts.svg import Picture, dot, label, line, path, stretched, width_of, words
from strobe.present.format import cut, written

_TOP, _BELOW, _TEXT = 34, 44, 15  # pixels: above and below the plot, and from label to label
_HEIGHT, _LEAST = 290, 140  # pixels of the plot
_START, _END = 0.02, 0.95  # shares of the plot between which points lie
_BESIDE = 0.012  # share of the plot from one line to the next, at most
SERIES = 10  # colours; further lines begin again, broken
LONGEST = 34  # characters of a name


@dataclass(frozen=True)
class Point:
    """What was measured at one place, with its interval, if there is one; ``mark`` is the class of a ring around it."""

    median: float
    low: float | None
    high: float | None
    title: str
    mark: str = ""


@dataclass(frozen=True)
class Series:
    """A line: its name, its classes, and what was measured at each place, at one at least."""

    name: str
    css: str
    points: Mapping[float, Point]
    broken: str = ""

    @property
    def ends(self) -> list[float]:
        """All values that an axis must hold."""
        found = ((point.low, point.median, point.high) for point in self.points.values())
        return [value for values in found for value in values if value is not None]


def lines(
    title: str, hint: str, series: Sequence[Series], names: Mapping[float, str], *, below: str, up: Scale
) -> Picture:
    """Lines with intervals, each named where it ends.

    ``title`` is for those who cannot see, ``hint`` the unit; ``names`` are those of places along the axis, ``below``
    says what these are; ``up`` is the axis of the values: if it goes by factors, the places may lie so too.
    """
    if not series:
        nothing = "Nothing was measured."
        return Picture(f"{title}: {nothing}", 24, [words(0, 14, nothing, "soft")])
    height, over, places = max(_HEIGHT, _TEXT * len(series)), along(names, logarithmic=up.logarithmic), sorted(names)
    bottom, marks = _TOP + height, up.marks(8)

    nearest = min((over.place(b) - over.place(a) for a, b in pairwise(places)), default=1.0)
    beside = min(_BESIDE, nearest / (2 * len(series))) * any(
        point.low for each in series for point in each.points.values()
    )

    def x(place: float, number: float = (len(series) - 1) / 2) -> float:
        """Lines stand a little beside each other, so that none hides another's interval."""
        return _START + (_END - _START) * over.place(place) + beside * (number - (len(series) - 1) / 2)

    def y(value: float) -> float:
        return _TOP + height * (1 - up.place(value))

    curves: list[Markup] = []
    for number, each in enumerate(series):  # through neighbouring points; where one failed there is a gap
        for known, run in groupby(places, each.points.__contains__):
            way = (
                [(1000 * x(place, number), 1000 * (1 - up.place(each.points[place].median))) for place in run]
                if known
                else []
            )
            curves += [path(way, f"series {each.css} {each.broken}".strip())] if len(way) > 1 else []
    drawn = [line(0, y(mark), 1, y(mark), "grid") for mark in marks]
    drawn += [line(0, bottom, 1, bottom, "base"), stretched(_TOP, height, curves)]
    free = 0.0
    for place in places:  # their names, as many as fit on a phone
        text = cut(names[place], LONGEST)
        half = (width_of(text) / 2 + 3) / _LEAST
        drawn.append(line(x(place), bottom, x(place), bottom + 5, "tick"))
        if place == places[0] or x(place) - half >= free:
            drawn.append(label(x(place), bottom + 19, text, "soft", "middle"))
            free = x(place) + half
    drawn.append(label(0.5, bottom + 38, below, "soft", "middle"))
    last = [max(each.points) for each in series]
    ends = [y(each.points[place].median) for each, place in zip(series, last, strict=True)]
    bases = apart(ends, _TOP, bottom, _TEXT)
    for number, (each, place, end, base) in enumerate(zip(series, last, ends, bases, strict=True)):
        drawn.append(line(x(place, number), end, 1, base, f"leader {each.css}"))
    for number, each in enumerate(series):
        for place, point in each.points.items():
            across, middle = x(place, number), y(point.median)
            if point.low is not None and point.high is not None:
                drawn.append(line(across, y(point.low), across, y(point.high), f"interval {each.css}"))
            if point.mark:
                drawn.append(dot(across, middle, 8, f"{point.mark} {each.css}"))
            drawn.append(dot(across, middle, 4, f"point {each.css}", point.title))
    left = max(width_of(written(mark)) for mark in marks) + 10
    return Picture(
        f"{title}: lines of {hint}",
        bottom + _BELOW,
        [
            words(0, 14, hint, "soft"),
            *(words(left - 8, y(mark) + 4, written(mark), "soft", end=True) for mark in marks),
        ],
        drawn,
        [words(6, base + 4, each.name, "end") for each, base in zip(series, bases, strict=True)],
        left=left,
        right=max(width_of(each.name) for each in series) + 12,
        least=_LEAST,
    )


def apart(places: Sequence[float], first: float, last: float, gap: float) -> list[float]:
    """The places, moved so little that neighbours are ``gap`` apart and none lies beyond the ends."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    found = list(places)
    above = first - gap
    for number in order:
        found[number] = above = max(found[number], above + gap)
    below = last + gap
    for number in reversed(order):
        found[number] = below = min(found[number], below - gap)
    return found
