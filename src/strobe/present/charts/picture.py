"""A drawing that fills its place on a page, and stands alone as a file: its plot stretches, its text keeps its size."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from strobe.present.charts.svg import svg, tag, words
from strobe.present.page import asset, shown

WIDTH, MARGIN = 800, 20  # pixels, of a file
_TITLE, _CAPTION = 42, 30  # pixels above and below, in a file


@dataclass(frozen=True)
class Picture:
    """Names at the left, a plot, names at the right; ``height`` pixels high.

    Only the plot's width follows that of its place: places in it are shares, those beside it are pixels.
    """

    label: str
    height: float
    before: Sequence[Markup]
    plot: Sequence[Markup] = ()
    after: Sequence[Markup] = ()
    left: float = 0.0  # pixels
    right: float = 0.0
    least: float = 110.0  # pixels of the plot, in which it is legible

    def inline(self) -> Markup:
        """For a page."""
        columns = f"{self.left:.0f}px minmax({self.least:.0f}px,1fr) {self.right:.0f}px"
        parts = [svg(self.height, "", part) for part in (self.before, self.plot, self.after)]
        chart = {"class_": "chart", "role": "img", "aria_label": self.label}
        return tag("div", [tag("div", parts, **chart, style=f"grid-template-columns:{columns}")], class_="scroll")

    def file(self, title: str, caption: str) -> str:
        """As an SVG file with its own colours for light and dark, a title above and a caption below."""
        width, height = WIDTH + 2 * MARGIN, _TITLE + self.height + _CAPTION
        middle = max(1.0, WIDTH - self.left - self.right)
        places = (
            (0.0, self.left, self.before),
            (self.left, middle, self.plot),
            (WIDTH - self.right, self.right, self.after),
        )
        parts = [
            tag("svg", part, x=f"{MARGIN + x:.0f}", y=_TITLE, width=f"{wide:.0f}", height=f"{self.height:g}")
            for x, wide, part in places
            if part
        ]
        style = asset("colours.css") + asset("charts.css")
        whole = [
            Markup(f"\n<style>\n{style}</style>\n"),
            tag("rect", class_="paper", width=width, height=f"{height:g}"),
            words(MARGIN, 28, title, "title"),
            tag("g", parts, class_="chart"),
            words(MARGIN, height - 11, shown(caption), "soft"),
        ]
        seen = {"viewBox": f"0 0 {width} {height:g}", "role": "img", "aria_label": self.label}
        return tag("svg", whole, xmlns="http://www.w3.org/2000/svg", width=width, height=f"{height:g}", **seen) + "\n"
