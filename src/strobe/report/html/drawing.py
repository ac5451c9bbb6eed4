"""Pieces of SVG. Across the page all places are percentages and text keeps its size, so that a phone can read it."""

import math
from collections.abc import Iterable, Sequence

from strobe.report.html.text import esc


def svg(height: float, label: str, parts: Iterable[str], css: str = "") -> str:
    """A drawing as wide as its place and so many pixels high; ``label`` says what it shows to those who cannot see."""
    return (
        f'<svg class="{css}" width="100%" height="{height:g}" role="img" aria-label="{esc(label)}">'
        f"{''.join(parts)}</svg>"
    )


def rect(left: float, top: float, width: float, height: float, css: str, title: str = "") -> str:  # noqa: PLR0917
    """A box; ``left`` and ``width`` are shares of the drawing, the others pixels."""
    place = f'x="{_share(left)}" y="{top:g}" width="{_share(max(0.0, width))}" height="{height:g}"'
    return f'<rect class="{css}" {place}>{_title(title)}</rect>' if title else f'<rect class="{css}" {place}/>'


def line(left: float, top: float, right: float, bottom: float, css: str) -> str:
    """A line; ``left`` and ``right`` are shares of the drawing, the others pixels."""
    return f'<line class="{css}" x1="{_share(left)}" y1="{top:g}" x2="{_share(right)}" y2="{bottom:g}"/>'


def whisker(low: float, high: float, middle: float) -> list[str]:
    """An interval between two shares of the drawing, so many pixels from its top, legible on any colour."""
    lines = [(low, middle, high, middle), *((end, middle - 4, end, middle + 4) for end in (low, high))]
    return [line(*places, css) for css in ("halo", "whisker") for places in lines]


def dot(left: float, top: float, radius: float, css: str, title: str = "") -> str:
    """A circle; ``left`` is a share of the drawing, the others pixels."""
    place = f'cx="{_share(left)}" cy="{top:.1f}" r="{radius:g}"'
    return f'<circle class="{css}" {place}>{_title(title)}</circle>' if title else f'<circle class="{css}" {place}/>'


def label(left: float, top: float, text: str, css: str = "", anchor: str = "start") -> str:
    """A line of text; ``left`` is a share of the drawing, ``top`` the base line in pixels."""
    return f'<text class="{css}" x="{_share(left)}" y="{top:g}" text-anchor="{anchor}">{esc(text)}</text>'


def stretched(top: float, height: float, parts: Iterable[str]) -> str:
    """What percentages cannot place: drawn in a square of 1,000 by 1,000, which is pulled over the drawing's width."""
    return (
        f'<svg x="0" y="{top:g}" width="100%" height="{height:g}" viewBox="0 0 1000 1000" preserveAspectRatio="none">'
        f"{''.join(parts)}</svg>"
    )


def path(points: Sequence[tuple[float, float]], css: str, *, closed: bool = False) -> str:
    """A line through points, in thousandths of a ``stretched`` drawing."""
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{css}" d="M{way}{"Z" * closed}"/>'


def ticks(top: float, most: int = 5) -> list[float]:
    """Round numbers from 0 up to ``top``, so many at most besides 0."""
    if not (math.isfinite(top) and top > 0):
        return [0.0]
    power = 10.0 ** math.floor(math.log10(top / most))
    step = next(width * power for width in (1, 2, 2.5, 5, 10, 20) if top / (width * power) <= most + 1e-9)
    return [number * step for number in range(math.floor(top / step + 1e-9) + 1)]


def anchor_at(share: float) -> str:
    """How a label at that place stays inside the drawing."""
    return "start" if share < 0.03 else "end" if share > 0.97 else "middle"


def _share(value: float) -> str:
    return f"{100 * value:.2f}%"


def _title(text: str) -> str:
    return f"<title>{esc(text)}</title>"
