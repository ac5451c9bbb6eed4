"""Bars: a line for each value, below headings where there are groups."""

from collections.abc import Sequence
from dataclasses import dataclass

from strobe.present.charts.scale import axis
from strobe.present.charts.svg import Picture, anchor_at, label, line, rect, whisker, width_of, words
from strobe.present.format import cut, figure, written

PITCH, BAR, GROUP = 20, 12, 30  # pixels: from bar to bar, a bar, a group's heading
_TOP, _TALL = 44, 420  # pixels: above the first bar, and from where on the axis is repeated below
_LONGEST = 30  # characters of a name


@dataclass(frozen=True)
class Bar:
    """A line: two names, and a value with its interval, if there are; ``told`` stands where there is no value."""

    name: str
    variant: str
    css: str
    title: str
    value: float | None
    low: float | None = None
    high: float | None = None
    told: str = ""


def bars(title: str, hint: str, lines: Sequence[Bar | str], *, logarithmic: bool = False) -> Picture:
    """Names, figures, and bars with their intervals on one axis, by factors where it is ``logarithmic``.

    ``title`` is for those who cannot see, ``hint`` the unit; of the lines a text is the heading of a group.
    """
    drawn_lines = [each for each in lines if isinstance(each, Bar)]
    values = [each for each in drawn_lines if each.value is not None]
    scale = axis(
        (end for each in values for end in (each.low, each.value, each.high) if end is not None),
        logarithmic=logarithmic,
    )
    first = max([width_of(cut(each.name, _LONGEST)) for each in drawn_lines] or [0]) + 14
    second = max([width_of(cut(each.variant, _LONGEST)) for each in drawn_lines] or [0])
    figures = [width_of(figure(each.value)) for each in values if each.value is not None]
    end = first + (second + 14 if second else 0) + max([*figures, 42])
    base, names, drawn = float(_TOP), [], []
    for each in lines:
        if isinstance(each, str):
            base += GROUP
            names.append(words(0, base - 9, each, "group"))
            continue
        below, middle = base + PITCH / 2 + 4, base + PITCH / 2
        names += [words(0, below, cut(each.name, _LONGEST)), words(first, below, cut(each.variant, _LONGEST), "soft")]
        if each.value is None:
            names.append(words(end, below, each.told, "failed" if each.told == "failed" else "soft", end=True))
        else:
            names.append(words(end, below, figure(each.value), end=True))
            drawn.append(rect(0, middle - BAR / 2, scale.place(each.value), BAR, f"bar {each.css}", each.title))
            if each.low is not None and each.high is not None:
                drawn += whisker(scale.place(each.low), scale.place(each.high), middle)
        base += PITCH
    tall = base > _TALL
    hint = f"{hint}{'; logarithmic scale' * logarithmic}"
    names.append(words(0, 14, hint if values else "Nothing was measured.", "soft"))
    scales = [line(0, _TOP - 4, 0, base + 2, "base")] if values else []
    for mark in scale.marks() if values else ():
        place = scale.place(mark)
        scales.append(line(place, _TOP - 4, place, base + 2, "grid"))
        for height in (_TOP - 10, base + 18)[: 1 + tall]:
            scales.append(label(place, height, written(mark), "soft", anchor_at(place)))
    height = base + (26 if tall else 8)
    return Picture(f"{title}: bars of {hint}", height, names, [*scales, *drawn], left=end + 10, right=14)
