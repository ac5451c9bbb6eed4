"""A drawing that fills its place on a page, and stands alone as a file: its plot stretches, its text keeps its size."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.report.html.drawing import svg
from strobe.report.html.page import COLOURS
from strobe.report.html.text import esc

STYLE = Path(__file__).with_name("chart.css").read_text(encoding="utf-8")
WIDTH, MARGIN = 800, 20  # pixels, of a file
_TITLE, _CAPTION = 42, 30  # pixels above and below, in a file
_LETTER = 6.6  # pixels, on average
_FONT = 'font-family: -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", sans-serif'


@dataclass(frozen=True)
class Picture:
    """Names at the left, a plot, names at the right; so many pixels high.

    Only the plot's width follows that of its place: places in it are shares, those beside it are pixels.
    """

    label: str
    height: float
    before: Sequence[str]
    plot: Sequence[str] = ()
    after: Sequence[str] = ()
    left: float = 0.0  # pixels
    right: float = 0.0
    least: float = 110.0  # pixels of the plot, in which it is legible

    def inline(self) -> str:
        """For a page."""
        columns = f"{self.left:.0f}px minmax({self.least:.0f}px,1fr) {self.right:.0f}px"
        parts = "".join(svg(self.height, "", part) for part in (self.before, self.plot, self.after))
        parts = parts.replace('role="img" aria-label=""', 'aria-hidden="true"')
        return (
            f'<div class="scroll"><div class="chart" role="img" aria-label="{esc(self.label)}" '
            f'style="grid-template-columns:{columns}">{parts}</div></div>'
        )

    def file(self, title: str, caption: str) -> str:
        """As an SVG file with its own colours for light and dark, a title above and a caption below."""
        width, height = WIDTH + 2 * MARGIN, _TITLE + self.height + _CAPTION
        middle = WIDTH - self.left - self.right
        places = (
            (0.0, self.left, self.before),
            (self.left, middle, self.plot),
            (WIDTH - self.right, self.right, self.after),
        )
        parts = "".join(
            f'<svg x="{MARGIN + x:.0f}" y="{_TITLE}" width="{max(1.0, wide):.0f}" height="{self.height:g}">'
            f"{''.join(part)}</svg>\n"
            for x, wide, part in places
            if part
        )
        style = f"{COLOURS}\n{STYLE}svg {{ {_FONT}; overflow: visible; }}\nsvg text {{ font-size: 12px; }}\n"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:g}" '
            f'viewBox="0 0 {width} {height:g}" role="img" aria-label="{esc(self.label)}">\n<style>\n{style}</style>\n'
            f'<rect class="paper" width="{width}" height="{height:g}"/>\n'
            f'{words(MARGIN, 28, title, "title")}\n<g class="chart">\n{parts}</g>\n'
            f"{words(MARGIN, height - 11, caption, 'soft')}\n</svg>\n"
        )


def words(x: float, base: float, text: str, css: str = "", *, end: bool = False) -> str:
    """A line of text that begins, or ends, at ``x`` pixels; nothing without a text."""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text class="{css}" x="{x:.1f}" y="{base:g}"{anchor}>{esc(text)}</text>' if text else ""


def width_of(text: str) -> float:
    """Pixels that a text takes, about."""
    return _LETTER * len(text)


def cut(text: str, most: int) -> str:
    """A text of so many characters at most."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
