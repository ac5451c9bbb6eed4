"""A picture of the recorded steps: one row a step with its phases as blocks, and what each loader worker did."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFont

from .columns import PHASES
from .ranges import Interval, Step

# Paul Tol's "bright" (with a lighter grey) and "light" schemes, which colour-blind readers can tell apart:
# https://sronpersonalpages.nl/~pault/
_BRIGHT = ("#EE6677", "#CCBB44", "#4477AA", "#66CCEE", "#228833", "#AA3377", "#D4D4D4")
_LIGHT = ("#77AADD", "#EE8866", "#44BB99", "#EEDD88", "#AAAA00", "#FFAABB", "#99DDFF", "#BBCC33")
_COLORS = dict(zip(PHASES, _BRIGHT, strict=True))
_PAPER, _INK, _FAINT, _RULE, _EMPTY = "#FFFFFF", "#222222", "#6B6B6B", "#E2E2E2", "#F4F4F4"
_WIDTH, _LEFT, _RIGHT, _MARGIN = 1200, 104, 96, 20  # pixels; the plot lies between _LEFT and _RIGHT
_PLOT = _WIDTH - _LEFT - _RIGHT
_MOST_STEPS, _MOST_LANES = 40, 16
_TALLEST = 4000  # of the sheet that is drawn on; what is used of it is kept
_FINE = 8  # parts of a pixel: blocks narrower than a pixel get their share of its colour
_MS = 1e6


def draw(
    steps: Sequence[Step], workers: Mapping[str, Sequence[Interval]] | None = None, title: str = ""
) -> torch.Tensor:
    """Draw steps in the order given, and below them a lane for each loader worker over the time from first to last.

    At most 40 steps and 16 lanes are drawn; the picture says so when there are more. A step of more than three times
    the median length is cut at the edge, and marked, so that the others can be read.

    Returns:
        uint8 of (height, 1200, 3): RGB.

    Raises:
        ValueError: There are no steps.
    """
    if not steps:
        raise ValueError("steps is empty; draw at least one step")
    shown, lanes = steps[:_MOST_STEPS], list((workers or {}).items())[:_MOST_LANES]
    picture = _Picture()
    if title:
        picture.text(_MARGIN, title, 21)
        picture.y += 32
    lengths = [(step.end - step.start) / _MS for step in steps]
    note = f"{len(steps)} step{'s' * (len(steps) != 1)}, median {_figure(median(lengths))} ms"
    if len(steps) > len(shown):
        note += f"; the first {len(shown)} are drawn"
    picture.text(_MARGIN, note, 14, ink=_FAINT)
    picture.y += 28
    picture.legend(_shares(steps))
    picture.rows(*_step_rows(shown))
    if lanes:
        picture.y += 26
        note = "" if len(lanes) == len(workers or {}) else f": the first {len(lanes)} of {len(workers or {})}"
        picture.text(_MARGIN, f"Loader workers{note}", 16)
        picture.y += 28
        names = list(dict.fromkeys(interval.name for _, intervals in lanes for interval in intervals))
        colors = {name: _LIGHT[n % len(_LIGHT)] for n, name in enumerate(names)}
        picture.legend(list(colors.items()))
        picture.rows(*_lane_rows(shown, lanes, colors))
    return picture.tensor()


@dataclass(frozen=True)
class _Row:
    """A bar between two labels; times in nanoseconds."""

    left: str
    right: str
    span: tuple[int, int]  # that the plot's width shows
    until: int  # where the bar ends, or is cut at the plot's edge
    blocks: Sequence[tuple[int, int, str]]  # start, end, colour; the later ones on top
    marks: Sequence[tuple[float, str]] = ()  # where on the bar to write what


class _Picture:
    """A sheet that is filled downwards: `y` is where the next thing goes."""

    def __init__(self) -> None:
        self.y = _MARGIN
        self._image = Image.new("RGB", (_WIDTH, _TALLEST), _PAPER)
        self._pen = ImageDraw.Draw(self._image)

    def tensor(self) -> torch.Tensor:
        height = min(self.y + _MARGIN, _TALLEST)
        pixels = bytearray(self._image.crop((0, 0, _WIDTH, height)).tobytes())
        return torch.frombuffer(pixels, dtype=torch.uint8).view(height, _WIDTH, 3)

    def text(
        self, x: float, text: str, size: int, *, ink: str = _INK, anchor: str = "lt", width: int = 0, down: int = 0
    ) -> None:
        """Write at `x`, `down` pixels below `y`, no wider than `width` or the sheet."""
        font: Any = ImageFont.load_default(size)
        room, cut = width or _WIDTH - _MARGIN - x, text if len(text) < 300 else f"{text[:300]}..."
        while len(cut) > 3 and font.getlength(cut) > room:
            cut = f"{cut.removesuffix('...')[:-1]}..."
        self._pen.text((x, self.y + down), cut, ink, font, anchor)

    def legend(self, entries: Iterable[tuple[str, str]]) -> None:
        """Coloured squares with their names, on as many lines as they need."""
        x, font = float(_MARGIN), ImageFont.load_default(14)
        for text, color in entries:
            wide = 40 + font.getlength(text)
            if x > _MARGIN and x + wide > _WIDTH - _MARGIN:
                x, self.y = float(_MARGIN), self.y + 22
            self.text(x + 20, text, 14)
            self._pen.rectangle((x, self.y - 1, x + 13, self.y + 12), color)
            x += wide
        self.y += 34

    def rows(self, rows: Sequence[_Row], height: int, gap: int) -> None:
        """Bars of one length in time under an axis, with rules through them."""
        milliseconds = (rows[0].span[1] - rows[0].span[0]) / _MS
        for tick in _ticks(milliseconds):
            x = _LEFT + tick / milliseconds * _PLOT
            self._pen.line((x, self.y + 18, x, self.y + 22 + len(rows) * (height + gap)), _RULE)
            self.text(x, f"{tick:,g}{' ms' * (tick == 0)}", 13, ink=_FAINT, anchor="mt")
        self.y += 22
        for row in rows:
            self.y += gap
            self._bar(row, height)
            for x, mark in row.marks:
                self.text(x, mark, 13, anchor="mm", down=height // 2)
            self.text(_LEFT - 10, row.left, 14, anchor="rm", width=_LEFT - 14, down=height // 2)
            self.text(_LEFT + _PLOT + 10, row.right, 14, anchor="lm", width=_RIGHT - 14, down=height // 2)
            self.y += height

    def _bar(self, row: _Row, height: int) -> None:
        scale = _PLOT * _FINE / (row.span[1] - row.span[0])
        strip = Image.new("RGB", (_PLOT * _FINE, 1), _EMPTY)
        pen = ImageDraw.Draw(strip)
        for first, last, color in row.blocks:
            left, right = max(first, row.span[0]) - row.span[0], min(last, row.span[1]) - row.span[0]
            if right > left:
                x = round(left * scale)
                pen.line((x, 0, max(round(right * scale) - 1, x), 0), color)
        drawn = strip.resize((_PLOT, height), Image.Resampling.BOX)
        used = max(round((min(row.until, row.span[1]) - row.span[0]) * scale / _FINE), 1)
        self._image.paste(drawn.crop((0, 0, used, height)), (_LEFT, self.y))
        for x in (_LEFT + _PLOT - 14, _LEFT + _PLOT - 8) if row.until > row.span[1] else ():  # it goes on
            self._pen.line((x + 4, self.y - 1, x, self.y + height), _PAPER, 2)


def _step_rows(steps: Sequence[Step]) -> tuple[list[_Row], int, int]:
    """A row for each step, their height and the gap between them."""
    lengths = [max(step.end - step.start, 1) for step in steps]
    longest = min(max(lengths), math.ceil(3 * median(lengths)))
    rows = []
    for step, length in zip(steps, lengths, strict=True):
        blocks = [(step.start, step.end, _COLORS["other"])]
        blocks += [(i.start, i.end, _COLORS.get(i.name, _COLORS["other"])) for i in step.phases]
        told, span = f"{_figure(length / _MS)} ms", (step.start, step.start + longest)
        rows.append(_Row(f"step {step.number}", told, span, step.start + length, blocks))
    return (rows, 26, 8) if len(steps) <= 12 else (rows, 16, 4)


def _lane_rows(
    steps: Sequence[Step], lanes: Sequence[tuple[str, Sequence[Interval]]], colors: Mapping[str, str]
) -> tuple[list[_Row], int, int]:
    """A row for all steps and one for each lane, on one clock; their height and the gap between them."""
    start = min(step.start for step in steps)
    window = (start, max(*(step.end for step in steps), start + 1))
    scale = _PLOT / (window[1] - window[0])
    numbers = [
        (_LEFT + ((step.start + step.end) / 2 - start) * scale, f"{step.number}")
        for step in steps
        if (step.end - step.start) * scale > 34
    ]
    grey = [(step.start, step.end, ("#C4C4C4", "#DEDEDE")[n % 2]) for n, step in enumerate(steps)]
    rows = [_Row("steps", f"{steps[0].number} to {steps[-1].number}", window, window[1], grey, numbers)]
    for name, intervals in lanes:
        inner_last = sorted(intervals, key=lambda i: (i.start, -i.end))
        blocks = [(i.start, i.end, colors[i.name]) for i in inner_last]
        rows.append(_Row(name, f"{_busy(inner_last, *window):.0%} busy", window, window[1], blocks))
    return rows, 20, 6


def _busy(intervals: Iterable[Interval], start: int, end: int) -> float:
    """Share of the time from `start` to `end` that intervals, sorted by their start, cover."""
    covered, until = 0, start
    for interval in intervals:
        covered += max(min(interval.end, end) - max(interval.start, until), 0)
        until = max(until, interval.end)
    return covered / (end - start)


def _shares(steps: Sequence[Step]) -> list[tuple[str, str]]:
    """Legend entries of the phases, with their shares of the steps' time."""
    spent = dict.fromkeys(PHASES, 0)
    for step in steps:
        for interval in step.phases:
            name = interval.name if interval.name in spent else "other"
            spent[name] += max(min(interval.end, step.end) - max(interval.start, step.start), 0)
    whole = max(sum(step.end - step.start for step in steps), 1)
    spent["other"] += max(whole - sum(spent.values()), 0)
    shares = [(name, time / whole) for name, time in spent.items() if time]
    return [(f"{name} {share:.0%}" if share >= 0.01 else f"{name} <1%", _COLORS[name]) for name, share in shares]


def _ticks(end: float) -> list[float]:
    """Round numbers from 0 to `end`, five to eleven of them."""
    power = 10.0 ** math.floor(math.log10(end / 10))
    step = next(power * factor for factor in (1, 2, 5, 10) if end / (power * factor) <= 10)
    return [round(n * step, 9) for n in range(int(end / step + 1e-9) + 1)]


def _figure(milliseconds: float) -> str:
    """Three digits, more when they are whole."""
    digits = max(0, 2 - math.floor(math.log10(milliseconds))) if milliseconds > 0 else 0
    return f"{milliseconds:,.{min(digits, 3)}f}"
