"""A picture of the average step, and of how far its rate is from the ceilings."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strobe.callbacks.figures import EMPTY, FAINT, INK, PAPER, PHASE_COLOURS, Sheet, cut_mark
from strobe.present.format import duration, percent, rate
from strobe.present.raster import ink_on
from strobe.records.run import Record
from strobe.report.wording import ceiling_rates, subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CEILING_COLOURS = {"loader": PHASE_COLOURS["data_wait"], "model": PHASE_COLOURS["forward"], "joint": "#B8B8B8"}
_CEILING_NAMES = {"loader": "loader alone", "model": "model alone", "joint": "both, at most"}


def step_picture(summary: Mapping[str, Any]) -> "Figure | None":
    """A record's step as a stacked bar of its phases, and below it ceilings and measured rate; None without any."""
    seconds = {name: value for name, value in (summary.get("step_seconds") or {}).items() if value}
    measured = summary.get("images_per_second") or {}
    record = Record(dict(summary))
    rates = {name: value for name, value in ceiling_rates(record).items() if name != "transfer"}
    total = seconds.pop("total", None)
    if not total and not rates:
        return None
    page = Sheet()
    page.line(", ".join(subject(record)), 22, FAINT)
    if total:
        pace = f", {rate(measured['median'])} images/s" if measured.get("median") and not rates else ""
        page.line(f"Average step: {duration(total)}{pace}", 28)
        _draw_step(page, seconds, total)
    if rates:
        page.line("Images per second", 28)
        _draw_rates(page, rates, measured, (summary.get("ceilings") or {}).get("intervals") or {})
    return page.figure


def _draw_step(page: Sheet, seconds: Mapping[str, float], total: float) -> None:
    """The bar; a phase that is too narrow for its name stands in the line below."""
    axes, whole = page.axes(80), max(total, sum(seconds.values()))
    axes.set(xlim=(0, whole), ylim=(0, 1))
    axes.set_axis_off()
    axes.barh(0.5, whole, 1, color=EMPTY)
    start, outside = 0.0, []
    for name in sorted(seconds, key=lambda name: [*PHASE_COLOURS, name].index(name)):
        colour, label = PHASE_COLOURS.get(name, PHASE_COLOURS["other"]), name.replace("_", " ")
        amount = f"{duration(seconds[name])}, {percent(seconds[name] / total)}"
        axes.barh(0.5, seconds[name], 1, left=start, color=colour, edgecolor=PAPER)
        if 1150 * seconds[name] / whole >= max(13 * len(label), 11 * len(amount)) + 16:
            ink, middle = ink_on(colour), start + seconds[name] / 2
            axes.text(middle, 0.66, label, fontsize=22, color=ink, ha="center", va="center")
            axes.text(middle, 0.28, amount, fontsize=18, color=ink, ha="center", va="center")
        else:
            outside.append((f"{label} {amount}", colour))
        start += seconds[name]
    if outside:
        page.key(outside)


def _draw_rates(
    page: Sheet, rates: Mapping[str, float], measured: Mapping[str, float | None], intervals: Mapping[str, Any]
) -> None:
    """A bar from 0 for each ceiling, with its interval, and one for what was measured; all on one scale.

    A ceiling of more than four times the next rate is cut at the edge, and marked, so that the others can be read.
    """
    bars = [(_CEILING_NAMES[name], value, _CEILING_COLOURS[name], intervals.get(name)) for name, value in rates.items()]
    median, low, high = (measured.get(name) for name in ("median", "low", "high"))
    if median:
        bars.append(("measured", median, INK, [low, high] if low and high else None))
    ends = sorted(max(value, *(interval or [0])) for _, value, _, interval in bars)
    most = min(ends[-1], 4 * ends[-2]) if len(ends) > 1 else ends[-1]
    used = [f" ({percent(median / value)} used)" if median and name != "measured" else "" for name, value, *_ in bars]
    texts = [(name, rate(value) + text) for (name, value, *_), text in zip(bars, used, strict=True)]
    axes = page.rows(46, most, texts, right=190)
    for row, (_, value, colour, interval) in enumerate(bars):
        axes.barh(row, min(value, most), 0.6, color=colour)
        if value > most:
            cut_mark(axes, row)
        elif interval:  # in ink with a light edge, which shows on dark bars too
            for ink, width in ((PAPER, 5), (INK, 2)):
                axes.plot(
                    interval, [row, row], color=ink, linewidth=width, marker="|", markersize=14, markeredgewidth=width
                )
    if median:
        axes.axvline(median, color=INK, linewidth=2, linestyle=":")
