"""A curve over time: how much there was of something."""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from strobe.present.charts.scale import Scale, ticks
from strobe.present.charts.svg import anchor_at, label, path, plot, stretched
from strobe.present.format import duration

HEIGHT, _BELOW = 160, 22  # pixels of the plot, and below it


def curve(said: str, times: Sequence[float], values: Sequence[float], shown: Callable[[float], str]) -> Markup:
    """Values over seconds, of which there is one at least; ``shown`` writes a value, ``said`` is what it is."""
    end, top = max([*times, 1e-9]), 1.05 * max([*values, 1e-9])
    places = [(1000 * time / end, 1000 * (1 - value / top)) for time, value in zip(times, values, strict=True)]
    area = path([(places[0][0], 1000), *places, (places[-1][0], 1000)], "area", closed=True)
    drawn = [stretched(0, HEIGHT, [area, path(places, "series s1")])]
    scale = Scale(0.0, end)
    for mark in scale.marks(5):
        share = scale.place(mark)
        drawn.append(label(share, HEIGHT + 16, duration(mark) if mark else "0", "axis", anchor_at(share)))
    marks = {HEIGHT * (1 - mark / top): shown(mark) for mark in ticks(top, 4)}
    return plot(HEIGHT + _BELOW, said, marks, drawn)
