"""The parts that ``suite=convolution`` adds to its page: growth, profiles, and how far those disagree."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strobe.bench.harness.declare import Section, slug
from strobe.bench.suites.convolution.implementations import IMPLEMENTATIONS
from strobe.bench.suites.convolution.profiles import PAGE, Profile, load_profile
from strobe.bench.suites.convolution.reading import Reading, fit_growth, shares, total_variation
from strobe.bench.suites.convolution.suite import CALLS, EVENTS, EVENTS_OF_PYTHON, LOOKING, PARTS, PLAIN, SAMPLES, TIMER
from strobe.present import parts as kit
from strobe.present.format import TIMES, duration, percent

_ROWS = 12  # of the table of functions
DIRECTLY, LESS = "timed one by one", "cProfile, less what calls pay"
_GROWTH = (
    "A power of the side n is fitted to each implementation's medians, by least squares in logarithms; twice the side "
    "takes 2 to that power times as long. Each is over the sides that it was measured at, which are below it; powers "
    "over other sides do not compare. The interval is of the fit: it holds if the points scatter about one line; the "
    "farthest point lies so many times above or below it. Small images take about as long as the call itself, whatever "
    "their size; between the two largest sizes little of that is left, unless caches overflow there."
)
_TABLES = (
    "cProfile knows who called whom, but not by which way, so it has a table and no tree. Its own files, "
    "cells/*/profile.pstats, are for pstats and programs such as SnakeViz."
)
_TREES = (
    "A tree, by pyinstrument, gives the share of each call with what it calls, from 0.5% on. In its flame graph each "
    "call is a box as wide as its share, below that of its caller."
)
_APART_NOTE = (
    "Own time of each function, the time of functions in C being their callers', as a share of the whole: medians over "
    "trials. Timed one by one: the calls of _get_indices, and all besides im2col_naive, are made again alone, with the "
    "same arguments and no profiler; what is left of the whole is im2col_naive's own. The distance of two columns is "
    "the share of the time that would have to be given to other functions to make them equal (half the sum of all "
    "differences, the total variation distance)."
)
_HOW = {
    EVENTS: "Each call and each return is timed, of functions in C too; counts are exact.",
    EVENTS_OF_PYTHON: "As the document has it: functions in C are not timed, and their time is their callers'.",
    SAMPLES: "The stack is noted each millisecond; the interpreter asks at each call whether it is time.",
    TIMER: "The stack is noted each millisecond, when the system's timer interrupts: no call pays for it, but a sample "
    "waits until a function begins, a loop turns or a call of C ends.",
}


def sections(record: Mapping[str, Any], folder: Path) -> list[Section]:
    """What there is of each part; ``folder`` is the result's, in which cells left their profiles."""
    reading = Reading(record)
    contents = _growth(reading)
    places = {name: f"cells/{slug(cell['name'])}" for name, cell in reading.profilers.items()}
    seen = {name: profile for name in LOOKING if name in places and (profile := load_profile(folder / places[name]))}
    for title, about, names in (
        ("By events: cProfile", _TABLES, (EVENTS, EVENTS_OF_PYTHON)),
        ("By samples: pyinstrument and a timer", _TREES, (SAMPLES, TIMER)),
    ):
        if known := [part for name in names if name in seen for part in _profile(name, seen[name], places[name])]:
            contents.append(Section(title, [kit.Paragraph(about), *known]))
    return [*contents, *_disagreements(reading)]


def _told(head: str, words: str) -> kit.Part:
    return kit.Block([kit.Heading(head), kit.Paragraph(words, "advice")])


def _growth(reading: Reading) -> list[Section]:
    rows, lines = [], []
    for name, cells in reading.times.items():
        if (growth := fit_growth({side: cell["seconds"]["median"] for side, cell in cells.items()})) is None:
            continue
        sides = sorted(cells)
        fitted, local = f"{growth.exponent:.2f}", f"{growth.local:.2f}"
        within = "two sizes" if growth.interval is None else f"{growth.interval[0]:.2f} to {growth.interval[1]:.2f}"
        over, last = (f"n = {low:,} to {sides[-1]:,}" for low in (sides[0], sides[-2]))
        rows.append(
            (
                kit.Text(name, "b", "first"),
                kit.strong(fitted, within, over),
                kit.strong(local, last),
                f"{growth.farthest:.2f}{TIMES}",
                kit.Cell(IMPLEMENTATIONS[name].cost, "apart"),
            )
        )
        lines.append(f"{name}: n^{fitted} ({within}) for {over}; n^{local} for {last}")
    figures = ("#Power of n, 95% interval", "#Between the two largest", "#Farthest point")
    heads = ("Implementation", *figures, kit.Cell("In theory", "apart"))
    body: list[kit.Part] = [kit.Paragraph(_GROWTH), kit.Table(heads, rows, "cells")]
    return [Section("How times grow", body, "\n".join(lines))] if rows else []


def _profile(name: str, profile: Profile, place: str) -> list[kit.Part]:
    """What one profiler saw: its table, if it counts, or else its tree and a link to its flame graph."""
    how = _HOW[name]
    if profile.samples is not None:
        how += f" Here {profile.samples:,} samples of {duration(profile.seconds)}."
    parts = [_told(name, how)]
    if profile.rows:
        rows = [
            (
                kit.named(row.name, "code"),
                f"{row.calls:,}",
                *map(duration, (row.own, row.own / row.calls, row.cumulative)),
            )
            for row in profile.rows[:_ROWS]
        ]
        heads = ("Function", "#Calls", "#Own time", "#A call", "#With what it calls")
        parts += [kit.Table(heads, rows), *kit.more(len(profile.rows) - _ROWS, "functions, of less time")]
    if profile.tree:
        parts.append(kit.Pre(profile.tree))
    return [*parts, *(kit.note(kit.link(f"{place}/{PAGE}", f"The flame graph of {name}")) if profile.samples else [])]


def _disagreements(reading: Reading) -> list[Section]:
    """Shares side by side, the distances between them, and what explains them."""
    own = {DIRECTLY: reading.own(PLAIN), **{name: reading.own(name) for name in LOOKING}}
    own[LESS] = reading.less_calls() if own[DIRECTLY] else {}
    own = {name: parts for name, parts in own.items() if sum(parts.values()) > 0}
    if len(own) < 2:
        return []
    away = {name: total_variation(parts, own[DIRECTLY]) for name, parts in own.items() if DIRECTLY in own}
    rows: list[list[kit.Words]] = [
        [kit.Text(part, "b", "first"), *(f"{shares(parts)[part]:.1%}" for parts in own.values())] for part in PARTS
    ]
    distances = (f"{away[name]:.1%}" if name in away and name != DIRECTLY else "" for name in own)
    rows.append(["distance from timing one by one", *distances])
    why: list[kit.Part] = [kit.Heading("Why"), *(kit.Paragraph(reason) for reason in _reasons(reading, away))]
    table = kit.Table(["Function", *(f"#{name}" for name in own)], rows, "cells")
    return [Section("How far they disagree", [kit.Paragraph(_APART_NOTE), table, *why])]


def _reasons(reading: Reading, away: Mapping[str, float]) -> list[str]:
    """What of the differences the cost of looking explains."""
    reasons = []
    calls, of_called, a_call = reading.figure(EVENTS, CALLS), reading.of_called(), reading.a_call()
    if calls and of_called is not None and a_call and a_call > 0:
        who = f", of which the called bears {percent(of_called)} and its caller the rest"
        reasons.append(
            f"{EVENTS} times {calls:,.0f} calls, which take {duration(a_call * calls)} more than "
            f"{duration(reading.seconds(PLAIN))} alone: {duration(a_call)} a call{who}. "
            "So what calls often, and what is called often, looks longer than it is; "
            "where calls are few and long that would not be seen."
        )
    if LESS in away and EVENTS in away:
        before, after = away[EVENTS], away[LESS]
        verdict = f"explains {percent(1 - after / before)} of it" if after < before else "does not explain it"
        reasons.append(
            f"With that taken away from each function by its number of calls, the distance from timing one by one goes "
            f"from {before:.1%} to {after:.1%}: the cost of being timed {verdict}."
        )
    return reasons
