"""A picture of the average step, and of how far its rate is from the ceilings."""

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from strobe.present.charts.scale import ticks
from strobe.present.colours import INK, PAPER, PHASE_COLOURS, ink_on
from strobe.present.format import duration, percent, rate
from strobe.present.raster import Pixels, fitted, typeface
from strobe.records.run import Record
from strobe.report.wording import ceiling_rates, subject

_WIDTH, _MARGIN = 1200, 36
_RIGHT = _WIDTH - _MARGIN
_FAINT, _RULE, _EMPTY = "#6B6B6B", "#E2E2E2", "#F4F4F4"
_BAR, _ROW = 76, 46  # heights
_NAMES, _FIGURES = 150, 224  # widths left and right of the ceilings' bars
_CEILING_COLOURS = {"loader": PHASE_COLOURS["data_wait"], "model": PHASE_COLOURS["forward"], "joint": "#B8B8B8"}
_CEILING_NAMES = {"loader": "loader alone", "model": "model alone", "joint": "both, at most"}


def step_picture(summary: Mapping[str, Any]) -> Pixels | None:
    """Draw a record's step as a stacked bar of its phases, and below it the ceilings and the measured rate.

    Returns:
        uint8 of (height, 1200, 3): RGB on white. None for a record without measured steps and ceilings.
    """
    seconds = {name: value for name, value in (summary.get("step_seconds") or {}).items() if value}
    measured = summary.get("images_per_second") or {}
    record = Record(dict(summary))
    rates = {name: value for name, value in ceiling_rates(record).items() if name != "transfer"}
    if "total" not in seconds and not rates:
        return None
    sheet = _Sheet()
    sheet.line(", ".join(subject(record)), 24, ink=_FAINT, gap=12)
    if total := seconds.pop("total", None):
        pace = f", {rate(measured['median'])} images/s" if measured.get("median") and not rates else ""
        sheet.line(f"Average step: {duration(total)}{pace}", 30, gap=14)
        _draw_step(sheet, seconds, total)
    if rates:
        sheet.line("Images per second", 30, gap=14)
        _draw_rates(sheet, rates, measured, (summary.get("ceilings") or {}).get("intervals") or {})
    return sheet.pixels()


class _Sheet:
    """A page that is cropped where its content ends: `y` is where the next thing goes."""

    def __init__(self) -> None:
        self.y = _MARGIN
        self._image = Image.new("RGB", (_WIDTH, 1200), PAPER)
        self.pen = ImageDraw.Draw(self._image)

    def pixels(self) -> Pixels:
        return np.array(self._image.crop((0, 0, _WIDTH, self.y + _MARGIN)))

    def line(self, text: str, size: int, *, ink: str = INK, gap: int = 4) -> None:
        """One line of text, cut at the margin; `gap` pixels below it."""
        self.text((_MARGIN, self.y), text, size, "la", ink=ink, room=_RIGHT - _MARGIN)
        self.y += ceil(1.25 * size) + gap

    def text(
        self, at: tuple[float, float], text: str, size: int, anchor: str, *, ink: str = INK, room: float = _WIDTH
    ) -> None:
        self.pen.text(at, fitted(text, typeface(size), room), ink, typeface(size), anchor)


def _draw_step(sheet: _Sheet, seconds: Mapping[str, float], total: float) -> None:
    """The bar; a phase that is too narrow for its name stands in the line below."""
    scale = (_RIGHT - _MARGIN) / max(total, sum(seconds.values()))
    sheet.pen.rectangle((_MARGIN, sheet.y, _RIGHT - 1, sheet.y + _BAR - 1), _EMPTY)
    phases = sorted(seconds, key=lambda name: [*PHASE_COLOURS, name].index(name))
    start, outside = 0.0, []
    for name in phases:
        left, right = round(_MARGIN + start * scale), round(_MARGIN + (start + seconds[name]) * scale)
        colour = PHASE_COLOURS.get(name, PHASE_COLOURS["other"])
        label = name.replace("_", " ")
        amount = f"{duration(seconds[name])}, {percent(seconds[name] / total)}"
        if right > left:
            sheet.pen.rectangle((left, sheet.y, right - 1, sheet.y + _BAR - 1), colour)
            sheet.pen.line((right - 1, sheet.y, right - 1, sheet.y + _BAR - 1), PAPER)
        if right - left >= max(typeface(24).getlength(label), typeface(20).getlength(amount)) + 16:
            middle, ink = (left + right) / 2, ink_on(colour)
            sheet.text((middle, sheet.y + _BAR * 0.33), label, 24, "mm", ink=ink)
            sheet.text((middle, sheet.y + _BAR * 0.72), amount, 20, "mm", ink=ink)
        else:
            outside.append((colour, f"{label} {amount}"))
        start += seconds[name]
    sheet.y += _BAR + 16
    _draw_legend(sheet, outside)
    sheet.y += 22


def _draw_legend(sheet: _Sheet, entries: list[tuple[str, str]]) -> None:
    """Coloured squares with their texts, on as many lines as they need."""
    x = float(_MARGIN)
    for colour, text in entries:
        wide = 30 + typeface(20).getlength(text) + 34
        if x > _MARGIN and x + wide - 34 > _RIGHT:
            x, sheet.y = float(_MARGIN), sheet.y + 32
        sheet.pen.rectangle((x, sheet.y, x + 19, sheet.y + 19), colour)
        sheet.text((x + 30, sheet.y + 10), text, 20, "lm", room=_RIGHT - x - 30)
        x += wide
    sheet.y += 32 if entries else 0


def _draw_rates(
    sheet: _Sheet, rates: Mapping[str, float], measured: Mapping[str, float | None], intervals: Mapping[str, Any]
) -> None:
    """A bar from 0 for each ceiling, with its interval, and one for what was measured; all on one scale.

    A ceiling of more than four times the next rate is cut at the edge, and marked, so that the others can be read.
    """
    bars = [(_CEILING_NAMES[name], value, _CEILING_COLOURS[name], intervals.get(name)) for name, value in rates.items()]
    median, low, high = (measured.get(key) for key in ("median", "low", "high"))
    if median:
        bars.append(("measured", median, INK, [low, high] if low and high else None))
    ends = sorted(max(value, *(interval or [0])) for _, value, _, interval in bars)
    most = min(ends[-1], 4 * ends[-2]) if len(ends) > 1 else ends[-1]
    left, plot = _MARGIN + _NAMES + 14, _WIDTH - 2 * _MARGIN - _NAMES - _FIGURES - 14
    bottom = sheet.y + len(bars) * _ROW
    for tick in ticks(most, 6):
        x = left + tick / most * plot
        sheet.pen.line((x, sheet.y, x, bottom + 6), _RULE, 2)
        sheet.text((x, bottom + 10), f"{tick:,g}", 18, "ma", ink=_FAINT)
    for number, (name, value, colour, interval) in enumerate(bars):
        middle, end = sheet.y + number * _ROW + _ROW // 2, left + min(value / most, 1) * plot
        sheet.text((left - 14, middle), name, 22, "rm", room=_NAMES)
        sheet.pen.rectangle((left, middle - 14, max(end - 1, left + 1), middle + 13), colour)
        if value > most:
            for x in (end - 16, end - 8):
                sheet.pen.line((x + 5, middle - 15, x, middle + 14), PAPER, 3)
        elif interval:
            _draw_interval(sheet, [left + min(bound / most, 1) * plot for bound in interval], middle)
        text = rate(value) if name == "measured" or not median else f"{rate(value)} ({percent(median / value)} used)"
        sheet.text((left + plot + 22, middle), text, 22, "lm", room=_FIGURES - 22)
    if median and rates:
        x = left + median / most * plot
        for y in range(sheet.y, bottom - _ROW, 10):
            sheet.pen.line((x, y, x, y + 5), INK, 2)
    sheet.y = bottom + 34


def _draw_interval(sheet: _Sheet, ends: list[float], middle: int) -> None:
    """A whisker in ink with a light edge, which shows on dark bars too."""
    low, high = ends
    for ink, width in ((PAPER, 5), (INK, 2)):
        sheet.pen.line((low, middle, high, middle), ink, width)
        for x in ends:
            sheet.pen.line((x, middle - 7, x, middle + 7), ink, width)
