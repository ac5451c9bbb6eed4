"""Intervals, verdicts and links as the page writes them: a verdict has a word and a sign besides its colour."""

from collections.abc import Callable, Sequence
from urllib.parse import quote

from strobe.compare.page.cells import Value
from strobe.report.html.drawing import svg
from strobe.report.html.pieces import interval
from strobe.report.html.text import TIMES, esc, times

MARKS = {"faster": "\u25b2", "slower": "\u25bc", "no difference": "=", "baseline": "\u25c6", "too few runs": "?"}
CSS = {"faster": "good", "slower": "bad", "too few runs": "fair"}


def value_interval(value: Value | None, show: Callable[[float], str]) -> str:
    """``75.0 to 80.7``; empty where it is not known."""
    return "" if value is None else interval(value.low, value.high, show)


def spread_of(ratio: Value | None) -> str:
    """``1.31 to 1.55``: the interval of a ratio, beside which the sign for times stands already."""
    return value_interval(ratio, lambda value: times(value).removesuffix(TIMES))


def factor(value: Value | None) -> str:
    """A ratio with the sign for times; empty where it is not known."""
    return "" if value is None else times(value.median)


def judged(verdict: str) -> str:
    """A verdict as HTML: its sign and its words."""
    mark = MARKS.get(verdict, "")
    sign = f'<span aria-hidden="true">{mark}</span> ' if mark else ""
    return f'<span class="verdict {CSS.get(verdict, "none")}">{sign}{esc(verdict, 40)}</span>' if verdict else ""


def beside(height: float, parts: Sequence[str]) -> str:
    """A drawing of so many pixels that says nothing but the figures beside it."""
    return svg(height, "", parts, "meter").replace('role="img" aria-label=""', 'aria-hidden="true"')


def link(path: str | None, words: str) -> str:
    """A link to a file beside or near the page; the words alone where it has no relative path."""
    if not path or path.startswith("/"):
        return f'<span class="none">{esc(words)}</span>'
    return f'<a href="./{esc(quote(path.encode("utf-8", "replace")), 4000)}">{esc(words)}</a>'
