"""Lines: values over settings, each with its interval, and each line named where it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from strobe.present.charts.scale import Scale, along
from strobe.present.charts.svg import Picture, dot, label, line, path, stretched, width_of, words
from strobe.present.format import cut, written

_TOP, _BELOW, _TEXT = 34, 44, 15  # pixels: above and below the plot, and from label to label
_HEIGHT, _LEAST = 290, 140  # pixels of the plot
_START, _END = 0.02, 0.95  # shares of the plot between which points lie
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
    def last(self) -> float:
        """The place where it ends."""
        return max(self.points)

    @property
    def ends(self) -> list[float]:
        """All values that an axis must hold."""
        found = ((point.low, point.median, point.high) for point in self.points.values())
        return [value for values in found for value in values if value is not None]


@dataclass(frozen=True)
class _Frame:
    """Where things lie: shares across, pixels down."""

    over: Scale
    up: Scale
    height: float
    places: Sequence[float]  # along the axis

    def x(self, place: float) -> float:
        return _START + (_END - _START) * self.over.place(place)

    def y(self, value: float) -> float:
        return _TOP + self.height * (1 - self.up.place(value))

    @property
    def bottom(self) -> float:
        return _TOP + self.height


def lines(
    title: str, hint: str, series: Sequence[Series], names: Mapping[float, str], *, below: str, up: Scale
) -> Picture:
    """Lines with intervals, each named where it ends.

    Args:
        title: What is shown, for those who cannot see.
        hint: The unit, written above the axis.
        series: Without any, the picture says that nothing was measured.
        names: Of the places along the axis.
        below: What the places are.
        up: The axis of the values; by factors, the places may lie so too.
    """
    if not series:
        nothing = "Nothing was measured."
        return Picture(f"{title}: {nothing}", 24, [words(0, 14, nothing, "soft")])
    height = max(_HEIGHT, _TEXT * len(series))
    frame = _Frame(along(names, logarithmic=up.logarithmic), up, height, sorted(names))
    marks = up.marks(8)
    left = max(width_of(written(mark)) for mark in marks) + 10
    before = [words(left - 8, frame.y(mark) + 4, written(mark), "soft", end=True) for mark in marks]
    drawn = [line(0, frame.y(mark), 1, frame.y(mark), "grid") for mark in marks]
    drawn += [line(0, frame.bottom, 1, frame.bottom, "base"), *_curves(series, frame), *_ticks(names, below, frame)]
    ends = [frame.y(each.points[each.last].median) for each in series]
    bases = apart(ends, _TOP, frame.bottom, _TEXT)
    for each, end, base in zip(series, ends, bases, strict=True):
        drawn.append(line(frame.x(each.last), end, 1, base, f"leader {each.css}"))
    drawn += [part for each in series for part in _points(each, frame)]
    return Picture(
        f"{title}: lines of {hint}",
        frame.bottom + _BELOW,
        [words(0, 14, hint, "soft"), *before],
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


def _curves(series: Sequence[Series], frame: _Frame) -> list[Markup]:
    """Lines through neighbouring points; where one failed there is a gap."""
    drawn = []
    for each in series:
        runs: list[list[tuple[float, float]]] = [[]]
        for place in frame.places:
            if place in each.points:
                height = 1000 * (1 - frame.up.place(each.points[place].median))
                runs[-1].append((1000 * frame.x(place), height))
            elif runs[-1]:
                runs.append([])
        drawn += [path(run, f"series {each.css} {each.broken}".strip()) for run in runs if len(run) > 1]
    return [stretched(_TOP, frame.height, drawn)]


def _points(each: Series, frame: _Frame) -> list[Markup]:
    drawn = []
    for place, point in each.points.items():
        x, y = frame.x(place), frame.y(point.median)
        if point.low is not None and point.high is not None:
            drawn.append(line(x, frame.y(point.low), x, frame.y(point.high), f"interval {each.css}"))
        if point.mark:
            drawn.append(dot(x, y, 8, f"{point.mark} {each.css}"))
        drawn.append(dot(x, y, 4, f"point {each.css}", point.title))
    return drawn


def _ticks(names: Mapping[float, str], below: str, frame: _Frame) -> list[Markup]:
    """The places below the plot: those that fit on a phone, and what they are."""
    drawn, free = [], 0.0
    for place in frame.places:
        x, text = frame.x(place), cut(names[place], LONGEST)
        drawn.append(line(x, frame.bottom, x, frame.bottom + 5, "tick"))
        half = (width_of(text) / 2 + 3) / _LEAST
        if place == frame.places[0] or x - half >= free:
            drawn.append(label(x, frame.bottom + 19, text, "soft", "middle"))
            free = x + half
    drawn.append(label(0.5, frame.bottom + 38, below, "soft", "middle"))
    return drawn
