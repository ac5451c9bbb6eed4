"""A picture of the recorded steps: one row per step with its phases as blocks, and what each loader worker did."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from .figures import EMPTY, FAINT, INK, PAPER, PHASE_COLOURS, Sheet
from .ranges import Interval, Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Paul Tol's "light" scheme: https://sronpersonalpages.nl/~pault/
_LIGHT = ("#77AADD", "#EE8866", "#44BB99", "#EEDD88", "#AAAA00", "#FFAABB", "#99DDFF", "#BBCC33")
_MOST_STEPS, _MOST_LANES = 40, 16
_MS = 1e6


def draw(steps: Sequence[Step], workers: Mapping[str, Sequence[Interval]] | None = None) -> "Figure":
    """Draw steps in the order given, and below them a lane for each loader worker over the time from first to last.

    At most 40 steps and 16 lanes are drawn; the picture says so when there are more. A step of more than three times
    the median length is cut off at the edge and marked, so that the others can be read.
    """
    shown, lanes = steps[:_MOST_STEPS], dict(list((workers or {}).items())[:_MOST_LANES])
    names = list(dict.fromkeys(interval.name for lane in lanes.values() for interval in lane))
    colours = {name: _LIGHT[n % len(_LIGHT)] for n, name in enumerate(names)}
    page = Sheet()
    note = f"{len(steps)} step{'s' * (len(steps) != 1)}, median {_told(median(i.end - i.start for i in steps))}"
    page.line(note + (f"; the first {len(shown)} are drawn" if len(steps) > len(shown) else ""), 16, FAINT)
    page.key(_shares(steps))
    _draw_steps(page, shown)
    if lanes:
        left_out = len(workers or {}) > len(lanes)
        page.line(f"Loader workers{f': the first {len(lanes)} of {len(workers or {})}' if left_out else ''}", 18)
        if colours:
            page.key(list(colours.items()))
        _draw_lanes(page, shown, lanes, colours)
    return page.figure


def _draw_steps(page: Sheet, steps: Sequence[Step]) -> None:
    lengths = [max(step.end - step.start, 1) for step in steps]
    longest = min(max(lengths), 3 * median(lengths))
    texts = [(f"step {step.number}", _told(length)) for step, length in zip(steps, lengths, strict=True)]
    axes = page.rows(34 if len(steps) <= 12 else 20, longest / _MS, texts, unit=" ms")
    for row, (step, length) in enumerate(zip(steps, lengths, strict=True)):
        window = (step.start, step.start + length)
        blocks = [(i.start, i.end, PHASE_COLOURS.get(i.name, PHASE_COLOURS["other"])) for i in step.phases]
        _draw_row(axes, row, window, [(*window, PHASE_COLOURS["other"]), *blocks])
        if length > longest:  # it goes beyond the right edge
            edge = axes.get_yaxis_transform()
            axes.text(
                0.995, row, "//", fontsize=20, color=PAPER, fontweight="bold", ha="right", va="center", transform=edge
            )


def _draw_lanes(
    page: Sheet, steps: Sequence[Step], lanes: Mapping[str, Sequence[Interval]], colours: Mapping[str, str]
) -> None:
    start = min(step.start for step in steps)
    window = (start, max(*(step.end for step in steps), start + 1))
    length = window[1] - start
    busy = [(name, f"{_covered(lane, *window) / length:.0%} busy") for name, lane in lanes.items()]
    axes = page.rows(26, length / _MS, [("steps", f"{steps[0].number} to {steps[-1].number}"), *busy], unit=" ms")
    _draw_row(axes, 0, window, [(step.start, step.end, ("#C4C4C4", "#DEDEDE")[n % 2]) for n, step in enumerate(steps)])
    for step in steps:
        if step.end - step.start > 0.034 * length:
            middle = ((step.start + step.end) / 2 - start) / _MS
            axes.text(middle, 0, f"{step.number}", fontsize=13, color=INK, ha="center", va="center_baseline")
    for row, lane in enumerate(lanes.values(), 1):
        inner_last = sorted(lane, key=lambda i: (i.start, -i.end))
        _draw_row(axes, row, window, [(*window, EMPTY), *((i.start, i.end, colours[i.name]) for i in inner_last)])


def _draw_row(axes: "Axes", row: int, window: tuple[int, int], blocks: Iterable[tuple[int, int, str]]) -> None:
    """Blocks (start, end, colour) within the window, later ones on top."""
    first, last = window
    inside = [(max(start, first) - first, min(end, last) - first, colour) for start, end, colour in blocks]
    bars = [((start / _MS, (end - start) / _MS), colour) for start, end, colour in inside if end > start]
    axes.broken_barh([bar for bar, _ in bars], (row - 0.4, 0.8), color=[colour for _, colour in bars], linewidth=0)


def _covered(lane: Iterable[Interval], start: int, end: int) -> int:
    """Nanoseconds from `start` to `end` that intervals cover."""
    covered, until = 0, start
    for interval in sorted(lane, key=lambda interval: interval.start):
        covered += max(min(interval.end, end) - max(interval.start, until), 0)
        until = max(until, interval.end)
    return covered


def _shares(steps: Sequence[Step]) -> list[tuple[str, str]]:
    """Legend entries of the phases, with their shares of the steps' time."""
    spent = dict.fromkeys(PHASE_COLOURS, 0)
    for step in steps:
        for interval in step.phases:
            name = interval.name if interval.name in spent else "other"
            spent[name] += max(min(interval.end, step.end) - max(interval.start, step.start), 0)
    whole = max(sum(step.end - step.start for step in steps), 1)
    spent["other"] += max(whole - sum(spent.values()), 0)
    shares = [(name, time / whole) for name, time in spent.items() if time]
    return [(f"{name} {share:.0%}" if share >= 0.01 else f"{name} <1%", PHASE_COLOURS[name]) for name, share in shares]


def _told(nanoseconds: float) -> str:
    """Three digits, more when they are whole."""
    value = nanoseconds / _MS
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"
