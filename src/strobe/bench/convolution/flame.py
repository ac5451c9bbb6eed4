"""A call tree as a flame graph: a box for each call, as wide as its share, above that of its caller."""

import re
import zlib
from collections.abc import Iterator

from strobe.bench.convolution.call_tree import Call, Roots, figures, total, walk
from strobe.report.html.drawing import label, rect, svg
from strobe.report.html.text import percent

_ROW = 19  # pixels, of which one stays free
_LEAST = 0.0005  # share of the width, about half a pixel, below which a box is left out
_LABELLED = 0.03
_IN_C = re.compile(r"^<(built-in method |built-in |method )?")  # what a box in grey need not say
_LETTERS = 150  # that have room across a page; where a box is narrower than on such a page, its edge cuts the text
_HUES = (210, 30, 130, 275, 350, 175, 55, 315)
_STYLE = "".join(
    (
        '.flame text{font:12px/1 ui-monospace,"Liberation Mono",monospace;fill:var(--ink,#16191d)}',
        ".flame rect{stroke:var(--paper,#fdfdfc);stroke-width:.5px}",
        ".flame svg{overflow:hidden}",
        ".flame-c{fill:hsl(215 8% 84%)}",
        *(f".flame-{i}{{fill:hsl({hue} 62% 80%)}}" for i, hue in enumerate(_HUES)),
        "@media screen and (prefers-color-scheme:dark){",
        ".flame text{fill:var(--ink,#e8eaed)}.flame rect{stroke:var(--paper,#14171b)}.flame-c{fill:hsl(215 8% 28%)}",
        *(f".flame-{i}{{fill:hsl({hue} 45% 27%)}}" for i, hue in enumerate(_HUES)),
        "}",
    )
)


def flame_graph(roots: Roots, title: str, *, styled: bool = True) -> str:
    """An SVG, for a page or a file of its own, in which the outermost calls are at the bottom.

    A module has one colour, given by its name; functions in C are grey. Each box tells its call's figures when it is
    pointed at. Boxes of less than about half a pixel are left out.

    Args:
        roots: The tree.
        title: What it shows, for those who cannot see it.
        styled: Whether it brings its style, which one of those on a page must.
    """
    whole = total(roots)
    boxes = list(_boxes(roots, whole, 0.0, 0)) if whole > 0 else []
    rows = 1 + max((depth for _, _, depth in boxes), default=-1)
    colours = _colours(roots)
    parts = [f"<style>{_STYLE}</style>"] if styled else []
    for call, left, depth in boxes:
        share, top = call.seconds / whole, (rows - 1 - depth) * _ROW
        tip = f"{call.name}: {percent(share)}, {figures(call)}"
        parts.append(rect(left, top, share, _ROW - 1, f"flame-{colours[call.module]}", tip))
        if share >= _LABELLED:
            parts.append(_clipped(left, top, share, _IN_C.sub("", call.name).rstrip(">")))
    drawing = svg(rows * _ROW, title, parts, "flame")
    return drawing.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def _boxes(calls: Roots, whole: float, left: float, depth: int) -> Iterator[tuple[Call, float, int]]:
    """Calls that are wide enough, where each begins, and how many callers it has."""
    for call in calls:
        if call.seconds >= _LEAST * whole:
            yield call, left, depth
            yield from _boxes(call.children, whole, left, depth + 1)
        left += call.seconds / whole


def _clipped(left: float, top: float, width: float, name: str) -> str:
    """The name within its box, whose edge cuts it on a narrow screen; text that points nowhere, so that tips work."""
    room = max(1, int(_LETTERS * width) - 1)
    text = name if len(name) <= room else f"{name[: room - 1]}…"
    inner = label(0.0, _ROW - 6, text).replace("<text ", '<text dx="4" ', 1)
    place = f'x="{100 * left:.2f}%" y="{top:g}" width="{100 * width:.2f}%" height="{_ROW - 1}"'
    return f'<svg {place} pointer-events="none">{inner}</svg>'


def _colours(roots: Roots) -> dict[str, str]:
    """A colour for each module by its name, those of wide boxes first; where one is taken, the next that is free."""
    found: dict[str, str] = {}
    free = set(range(len(_HUES)))
    longest: dict[str, float] = {}
    for call in walk(roots):
        if not call.builtin:
            longest[call.module] = max(call.seconds, longest.get(call.module, 0.0))
    for module in sorted(longest, key=lambda module: (-longest[module], module)):
        first = zlib.crc32(module.encode()) % len(_HUES)
        ways = [(first + step) % len(_HUES) for step in range(len(_HUES))]
        colour = next((way for way in ways if way in free), first)
        free.discard(colour)
        found[module] = str(colour)
    return {**found, "<built-in>": "c"}
