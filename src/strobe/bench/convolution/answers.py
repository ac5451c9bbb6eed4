"""The source document's questions, and what else follows, in sentences whose figures are the record's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strobe.bench.convolution.disagreement import shares
from strobe.bench.convolution.growth import Growth, fit_growth
from strobe.bench.convolution.reading import Reading, milliseconds, read
from strobe.bench.convolution.study import (
    CONV2D,
    EVENTS,
    IM2COL,
    LOOKING,
    LOOPS,
    NATIVE,
    PARTS,
    PLAIN,
    RECURSIVE,
    REFERENCE,
    SAMPLES,
    TIME,
    TIMER,
    VIEW,
    WINDOW_SUMS,
)
from strobe.bench.harness.wording import ratio
from strobe.report.html.text import percent

_, _INDICES, _REST = PARTS
UNKNOWN = "Not known, for too little of it was measured."


@dataclass(frozen=True)
class Answer:
    """A question and what the figures say."""

    question: str
    answer: str


def conclusions(record: Mapping[str, Any]) -> list[str]:
    """Which implementation is fastest, what profilers cost, how far they disagree, and what failed."""
    found = read(record)
    return [*_fastest(found), *_native(found), *_costs(found), *_distances(found), *_failures(found)]


def questions(record: Mapping[str, Any]) -> list[Answer]:
    """The document's five, answered."""
    found = read(record)
    asked = {
        "How do four loops compare with SciPy, on larger images too?": (_q1, (LOOPS, REFERENCE)),
        "Is the sum of each window's products by NumPy faster than four loops?": (_q2, (WINDOW_SUMS, LOOPS)),
        "And im2col?": (_q3, (IM2COL, LOOPS, WINDOW_SUMS, REFERENCE)),
        "What does the profile of im2col tell?": (_q4, (PLAIN, *LOOKING)),
        "What of the last implementation, the recursive one?": (_q5, (RECURSIVE, IM2COL, VIEW, REFERENCE)),
    }
    return [
        Answer(f"Q{number} {question}", " ".join([*(told(found) or [UNKNOWN]), *_missing(found, names)]))
        for number, (question, (told, names)) in enumerate(asked.items(), 1)
    ]


def _missing(found: Reading, names: Sequence[str]) -> list[str]:
    """Those that failed wherever they were to be measured."""
    return [f"{name} failed: {error.rstrip('.')}." for name in names if (error := found.failed(name))]


def growth_of(found: Reading, name: str, sides: Sequence[int] | None = None) -> Growth | None:
    """The power fitted to an implementation's medians, at these sides or all; None with fewer than two."""
    cells = found.times.get(name, {})
    chosen = [side for side in cells if sides is None or side in sides]
    return fit_growth(chosen, [cells[side]["seconds"]["median"] for side in chosen]) if len(chosen) > 1 else None


def _fastest(found: Reading) -> list[str]:
    told = []
    common = found.common(*found.times)
    sides = {max(common, default=0), max((side for cells in found.times.values() for side in cells), default=0)}
    for side in sorted(sides - {0}):
        cells = found.at(side)
        first, *others = cells
        named = dict.fromkeys([*others[:1], *(other for other in (LOOPS, REFERENCE) if other in others)])
        doubt = found.doubt(first, others[0], side) if others else ""
        ratios = [
            f"{ratio(faster)} times as fast as {other}{doubt * (other == others[0])}"
            for other in named
            if (faster := found.faster(first, other, side))
        ]
        among = f"all {len(cells)}" if len(cells) == len(found.asked) else f"{len(cells)} of {len(found.asked)}"
        words = f"; {', '.join(ratios)}" if ratios else ""
        verdict = f"{first} {'has the shortest time' if doubt else 'is fastest'}: {milliseconds(cells[first])}"
        told.append(f"At {side}x{side}, where {among} ways were measured, {verdict}{words}.")
    return told


def _failures(found: Reading) -> list[str]:
    """What failed; once of a way that failed at every size."""
    told = []
    for cell in found.lacking:
        name, sides = cell["column"], found.asked.get(cell["column"], ())
        lacking = [each for each in found.lacking if each["column"] == name and each["table"] == TIME]
        everywhere = cell["table"] == TIME and len(lacking) == len(sides) > 1 and bool(found.failed(name))
        told.append(
            f"{name} failed at every size: {cell['error']}" if everywhere else f"{cell['name']} failed: {cell['error']}"
        )
    return list(dict.fromkeys(told))


def _native(found: Reading) -> list[str]:
    sides = found.common(NATIVE, CONV2D)
    told = [f"at {side}x{side} {words}" for side in _ends(sides) if (words := found.compared(NATIVE, CONV2D, side))]
    return [f"The native operator against torch, both on one thread: {'; '.join(told)}."] if told else []


def _costs(found: Reading) -> list[str]:
    factors = [f"{name} {ratio(factor)}" for name in LOOKING if (factor := found.factor(name))]
    return [f"Under a profiler im2col takes this many times as long: {', '.join(factors)}."] if factors else []


def _distances(found: Reading) -> list[str]:
    told = []
    if (between := found.distance(EVENTS, SAMPLES)) is not None:
        told.append(f"{EVENTS} and {SAMPLES} disagree about {between:.1%} of im2col's time.")
    away = [f"{name} by {distance:.1%}" for name in LOOKING if (distance := found.distance(name, PLAIN)) is not None]
    if away:
        told.append(f"From what its parts take when they are timed one by one they are off: {', '.join(away)}.")
    return told


def _q1(found: Reading) -> list[str]:
    told = _compare(found, LOOPS, REFERENCE, _ends)
    sides = found.common(LOOPS, REFERENCE)
    grown = [f"{one.exponent:.2f} ({name})" for name in (LOOPS, REFERENCE) if (one := growth_of(found, name, sides))]
    if grown:
        told.append(
            f"Over sides of {sides[0]:,} to {sides[-1]:,} pixels the time grows with the side to the power of "
            f"{' and '.join(grown)}; 2 would be as the number of pixels, and less means that calls cost much however "
            "small the image is."
        )
    return told


def _q2(found: Reading) -> list[str]:
    told = _compare(found, WINDOW_SUMS, LOOPS, _ends)
    if told:
        told.append("It leaves the two loops over the kernel to NumPy, and pays for two calls of it for each pixel.")
    return told


def _q3(found: Reading) -> list[str]:
    told = [words for other in (LOOPS, WINDOW_SUMS, REFERENCE) for words in _compare(found, IM2COL, other, _last)]
    if told and (own := found.own(PLAIN)):
        told.append(
            f"The product of matrices, with all else besides making the matrix, is {percent(shares(own)[_REST])} "
            "of its time: a fast product gains nothing while the matrix is made element by element."
        )
    return told


def _q4(found: Reading) -> list[str]:
    known = {name: shares(own) for name in (EVENTS, SAMPLES, TIMER, PLAIN) if (own := found.own(name))}
    if not known:
        return []
    names = {PLAIN: "timing it directly"}
    said = ", ".join(f"{percent(part[_INDICES])} by {names.get(name, name)}" for name, part in known.items())
    told = [f"{_INDICES} has this share of the time, with what it calls in C: {said}."]
    if calls := found.calls(EVENTS):
        each = calls / found.profilers[EVENTS]["images"]
        told.append(f"{each:,.0f} calls are timed for one image of 7x7: the profile tells which of them to get rid of.")
        if factor := found.factor(EVENTS):
            told.append(
                f"How long they take it tells less well, for {EVENTS} makes it all {ratio(factor)} times as long."
            )
    if without := _compare(found, RECURSIVE, IM2COL, _last):
        told.append(f"Rid of them, by taking whole rows: {without[0][0].lower()}{without[0][1:]}")
    return told


def _q5(found: Reading) -> list[str]:
    told = [words for other in (IM2COL, VIEW, REFERENCE) for words in _compare(found, RECURSIVE, other, _last)]
    if not told:
        return []
    return [
        "It gives the same result, in any number of dimensions, and makes each plane's windows once.",
        *told,
        f"It still copies each pixel as often as the kernel has elements; {VIEW} copies none. The document's own "
        "falls back to the naive way for an image, makes the same windows again and again beyond two dimensions, and "
        "convolves a global image instead of its argument; this one does not.",
    ]


def _compare(found: Reading, name: str, other: str, which: Callable[[list[int]], list[int]]) -> list[str]:
    """A sentence for each of these sides, of those where both were measured."""
    sides = which(found.common(name, other))
    return [f"At {side}x{side} {words}." for side in sides if (words := found.compared(name, other, side))]


def _ends(sides: list[int]) -> list[int]:
    return list(dict.fromkeys([*sides[:1], *sides[-1:]]))


def _last(sides: list[int]) -> list[int]:
    return sides[-1:]
