"""Entrants that do the same work take turns in one process, and are compared within each round."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from strobe.errors import StrobeError
from strobe.records.steps import median_interval

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
    order = random.Random(0)
    for turn in range(rounds + 1):
        for place in order.sample(sorted(works), len(works)):
            rate = _turn(works[place], entrants[place].skip, seconds)
            if turn:
                results[place].rates.append(rate)
    return results


def _turn(work: Work, skip: int, seconds: float) -> float:
    for _ in range(1 + skip):
        work()
    images, began = 0, time.perf_counter()
    while True:
        images += work()
        passed = time.perf_counter() - began
        if passed >= seconds:
            return images / passed


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
