"""Pieces of SVG, and whole pictures. Across a drawing places are percentages and text keeps its size, for phones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from strobe.present.page import asset, colours, shown

_LETTER = 6.6  # pixels, on average
WIDTH, MARGIN = 800, 20  # pixels, of a file
_TITLE, _CAPTION = 42, 30  # pixels above and below, in a file


def tag(name: str, inner: Iterable[str] = (), **attributes: object) -> Markup:
    """An element; an underscore at the end of an attribute's name goes, any other becomes a hyphen."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{shown(value)}"' for key, value in attributes.items() if value != ""
    )
    text = "".join(shown(part) for part in inner)
    return Markup(f"<{name}{given}>{text}</{name}>" if text else f"<{name}{given}/>")


def svg(height: float, said: str, parts: Iterable[str], css: str = "") -> Markup:
    """A drawing as wide as its place and so many pixels high.

    ``said`` is what it shows, for those who cannot see it; empty where the figures beside it say the same.
    """
    seen = {"role": "img", "aria_label": said} if said else {"aria_hidden": "true"}
    return tag("svg", parts, class_=css, width="100%", height=f"{height:g}", **seen)


def rect(left: float, top: float, width: float, height: float, css: str, title: str = "") -> Markup:  # noqa: PLR0917
    """A box; ``left`` and ``width`` are shares of the drawing, the others pixels."""
    place = {"x": _share(left), "y": f"{top:g}", "width": _share(max(0.0, width)), "height": f"{height:g}"}
    return tag("rect", [tag("title", [title])] * bool(title), class_=css, **place)


def line(left: float, top: float, right: float, bottom: float, css: str) -> Markup:
    """A line; ``left`` and ``right`` are shares of the drawing, the others pixels."""
    return tag("line", class_=css, x1=_share(left), y1=f"{top:g}", x2=_share(right), y2=f"{bottom:g}")


def whisker(low: float, high: float, middle: float) -> list[Markup]:
    """An interval between two shares of the drawing, ``middle`` pixels from its top, legible on any colour."""
    lines = [(low, middle, high, middle), *((end, middle - 4, end, middle + 4) for end in (low, high))]
    return [line(*places, css) for css in ("halo", "whisker") for places in lines]


def dot(left: float, top: float, radius: float, css: str, title: str = "") -> Markup:
    """A circle; ``left`` is a share of the drawing, the others pixels."""
    return tag(
        "circle", [tag("title", [title])] * bool(title), class_=css, cx=_share(left), cy=f"{top:.1f}", r=f"{radius:g}"
    )


def label(left: float, top: float, text: str, css: str = "", anchor: str = "start") -> Markup:
    """A line of text; ``left`` is a share of the drawing, ``top`` the base line in pixels."""
    return tag("text", [text], class_=css, x=_share(left), y=f"{top:g}", text_anchor=anchor)


def words(x: float, base: float, text: str, css: str = "", *, end: bool = False) -> Markup:
    """A line of text that begins, or ends, at ``x`` pixels; nothing without a text."""
    return tag("text", [text], class_=css, x=f"{x:.1f}", y=f"{base:g}", text_anchor="end" * end) if text else Markup()


def stretched(top: float, height: float, parts: Iterable[str]) -> Markup:
    """What percentages cannot place: drawn in a square of 1,000 by 1,000, which is pulled over the drawing's width."""
    pulled = {"viewBox": "0 0 1000 1000", "preserveAspectRatio": "none"}
    return tag("svg", parts, x="0", y=f"{top:g}", width="100%", height=f"{height:g}", **pulled)


def path(points: Sequence[tuple[float, float]], css: str, *, closed: bool = False) -> Markup:
    """A line through points, in thousandths of a ``stretched`` drawing."""
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return tag("path", class_=css, d=Markup(f"M{way}{'Z' * closed}"))


def plot(height: float, said: str, marks: Mapping[float, str], parts: Iterable[str]) -> Markup:
    """A drawing with a line at each mark, by pixels from the top, and what is written there at its left."""
    grid = [line(0, place, 1, place, "grid") for place in marks]
    numbers = [label(1, place + 4, text, "axis", "end") for place, text in marks.items()]
    beside = tag("svg", numbers, class_="y", width="46", height=height, aria_hidden="true")
    return tag("div", [beside, svg(height, said, [*grid, *parts])], class_="plot")


def meter(share: float) -> Markup:
    """A share of 1 as a small bar, beside the figure that says it."""
    return svg(6, "", [rect(0, 0, 1, 6, "rail"), rect(0, 0, min(1.0, max(0.0, share)), 6, "fill level")], "meter")


def anchor_at(share: float) -> str:
    """How a label at that place stays inside the drawing."""
    return "start" if share < 0.03 else "end" if share > 0.97 else "middle"


def width_of(text: str) -> float:
    """Pixels that a text takes, about."""
    return _LETTER * len(text)


def _share(value: float) -> str:
    return f"{100 * value:.2f}%"


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
        style = colours() + asset("charts.css")
        whole = [
            Markup(f"\n<style>\n{style}</style>\n"),
            tag("rect", class_="paper", width=width, height=f"{height:g}"),
            words(MARGIN, 28, title, "title"),
            tag("g", parts, class_="chart"),
            words(MARGIN, height - 11, shown(caption), "soft"),
        ]
        seen = {"viewBox": f"0 0 {width} {height:g}", "role": "img", "aria_label": self.label}
        return tag("svg", whole, xmlns="http://www.w3.org/2000/svg", width=width, height=f"{height:g}", **seen) + "\n"
