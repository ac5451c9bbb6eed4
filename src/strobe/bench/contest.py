"""Entrants that do the same work take turns in one process, and are compared within each round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from strobe.errors import StrobeError
from strobe.measure.rounds import rounds as interleaved
from strobe.measure.statistics import median_interval
from strobe.measure.timing import repeated

Work = Callable[[], int]
"""Does a piece of work, a batch for example; gives the number of images that it moved."""


@dataclass(frozen=True)
class Entrant:
    """One way to do the work; ``make`` prepares it, and may find that it cannot be done here."""

    name: str
    make: Callable[[], Work]
    skip: int = 0  # pieces at the begin of each turn that are not timed: what was made ready in the meantime


@dataclass
class Result:
    """Images/s in each round; or why there are none."""

    name: str
    rates: list[float]
    reason: str = ""


def contest(entrants: Sequence[Entrant], *, rounds: int, seconds: float) -> list[Result]:
    """Rates of all entrants, in the order given.

    Each round they come in another random order, and each works for ``seconds``; a first round is a warm-up.
    """
    results = [Result(entrant.name, []) for entrant in entrants]
    works: dict[int, Work] = {}
    for place, entrant in enumerate(entrants):
        try:
            works[place] = entrant.make()
        except StrobeError as error:
            results[place].reason = str(error)
    for turn, place in interleaved(sorted(works), range(rounds + 1), seed=0):
        block = repeated(works[place], seconds, warmup=1 + entrants[place].skip)
        if turn:
            results[place].rates.append(block.rate)
    return results


def table(title: str, results: Sequence[Result], against: Sequence[str]) -> Table:
    """Median rates with their 95% interval, and the median of each round's ratio to the entrants ``against``."""
    known = {result.name: result.rates for result in results}
    shown = [name for name in against if known.get(name)]
    made = Table(title=title, title_justify="left")
    for heading in ("", "images/s", "95% interval", *(f"/ {name}" for name in shown)):
        made.add_column(heading, no_wrap=True)
    for result in results:
        if not result.rates:
            made.add_row(result.name, f"not measured: {result.reason}")
            continue
        rate = median_interval(result.rates)
        ratios = [_ratio(result.rates, known[name]) for name in shown]
        made.add_row(result.name, f"{rate['median']:,.0f}", f"{rate['low']:,.0f} to {rate['high']:,.0f}", *ratios)
    return made


def _ratio(rates: Sequence[float], reference: Sequence[float]) -> str:
    ratio = median_interval([ours / theirs for ours, theirs in zip(rates, reference, strict=True)])
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"
