"""The questions' answers and how times grow, for the page of ``suite=convolution``."""

import math
from collections.abc import Mapping
from typing import Any

from strobe.bench.convolution.answers import growth_of, questions
from strobe.bench.convolution.growth import Growth
from strobe.bench.convolution.implementations import IMPLEMENTATIONS
from strobe.bench.convolution.reading import Cell, Reading, read
from strobe.bench.harness.declare import Section
from strobe.report.html.pieces import table
from strobe.report.html.text import TIMES, esc

_APART = "padding-left:1.5em"  # from the figures before it
_NOTE = (
    "A power of the side n is fitted to each implementation's medians, by least squares in logarithms; twice the side "
    "takes 2 to that power times as long. Each is over the sides that it was measured at, which are below it; powers "
    "over other sides do not compare. The interval is of the fit: it holds if the points scatter about one line; the "
    "farthest point lies so many times above or below it. Small images take about as long as the call itself, whatever "
    "their size; between the two largest sizes little of that is left, unless caches overflow there."
)


def growth_sections(record: Mapping[str, Any]) -> list[Section]:
    """Both parts, with what there is of each."""
    found = read(record)
    answers = questions(record)
    asked = "".join(
        f'<div><h3>{esc(each.question)}</h3><p class="advice">{esc(each.answer, 2000)}</p></div>' for each in answers
    )
    text = "\n".join(f"{each.question}\n  {each.answer}" for each in answers)
    return [Section("The source document's questions", asked, text), *_growth(found)]


def _growth(found: Reading) -> list[Section]:
    fits = {name: growth for name in found.times if (growth := growth_of(found, name))}
    if not fits:
        return []
    rows, lines = [], []
    for name, growth in fits.items():
        sides = sorted(found.times[name])
        fitted = f"{growth.exponent:.2f}"
        within = "two sizes" if growth.interval is None else f"{growth.interval[0]:.2f} to {growth.interval[1]:.2f}"
        local = f"n = {sides[-2]:,} to {sides[-1]:,}"
        over = f"n = {sides[0]:,} to {sides[-1]:,}"
        rows.append(
            (
                f'<b class="first">{esc(name)}</b>',
                f"<b>{fitted}</b><small>{within}</small><small>{over}</small>",
                f"<b>{growth.local:.2f}</b><small>{local}</small>",
                f"{_farthest(growth, found.times[name]):.2f}{TIMES}",
                f'<div style="min-width:17em;{_APART}">{esc(IMPLEMENTATIONS[name].cost)}</div>',
            )
        )
        lines.append(f"{name}: n^{fitted} ({within}) for {over}; n^{growth.local:.2f} for {local}")
    theory = f'<span style="{_APART}">In theory</span>'
    heads = ("Implementation", "#Power of n, 95% interval", "#Between the two largest", "#Farthest point", theory)
    return [Section("How times grow", f"<p>{_NOTE}</p>{table(heads, rows, 'cells')}", "\n".join(lines))]


def _farthest(growth: Growth, cells: Mapping[int, Cell]) -> float:
    """How many times as long, or as short, as the fit says the farthest point takes."""
    return max(
        math.exp(abs(math.log(cell["seconds"]["median"] / growth.seconds(side)))) for side, cell in cells.items()
    )
