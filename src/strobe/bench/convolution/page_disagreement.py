"""How far profilers disagree, and why, for the page of ``suite=convolution``."""

from collections.abc import Mapping

from strobe.bench.convolution.disagreement import Looking, corrected, shares, total_variation
from strobe.bench.convolution.reading import Reading
from strobe.bench.convolution.saved import Saved, own_of_parts
from strobe.bench.convolution.study import EVENTS, EVENTS_OF_PYTHON, PARTS, PLAIN, SAMPLES, TIMER
from strobe.bench.harness.declare import Section
from strobe.bench.harness.wording import ratio
from strobe.measure.statistics import Interval
from strobe.report.html.pieces import interval, table
from strobe.report.html.text import duration, esc, percent, times

DIRECTLY, LESS = "timed one by one", "cProfile, less what calls pay"
_NOTE = (
    "Own time of each function, the time of functions in C being their callers', as a share of the whole: medians over "
    "visits. Timed one by one: the calls of _get_indices, and all besides im2col_naive, are made again alone, with the "
    "same arguments and no profiler; what is left of the whole is im2col_naive's own. The distance of two columns is "
    "the share of the time that would have to be given to other functions to make them equal (half the sum of all "
    "differences, the total variation distance)."
)


def disagreements(found: Reading, events: Saved | None) -> list[Section]:
    """Shares side by side, the distances between them, and what explains them.

    Args:
        found: The record's figures.
        events: cProfile's tree, of which what being timed costs is taken away, if it is there.
    """
    directly, paid_back = found.own(PLAIN), _corrected(found, events)
    own = {DIRECTLY: directly, **{name: found.own(name) for name in found.looked}, LESS: paid_back}
    own = {name: seconds for name, seconds in own.items() if seconds}
    if len(own) < 2:
        return []
    heads = ["Function", *(f"#{esc(name)}" for name in own)]
    rows = [
        [f'<b class="first">{esc(part)}</b>', *(f"{shares(seconds)[part]:.1%}" for seconds in own.values())]
        for part in PARTS
    ]
    away = (_distance(seconds, directly) if name != DIRECTLY else "" for name, seconds in own.items())
    rows.append(["distance from timing one by one", *away])
    rows.append(["times as long as without it", *(_times(found.factor(name)) for name in own)])
    why = reasons(found, own)
    said = "".join(f"<p>{esc(each, 2000)}</p>" for each in why)
    body = f"<p>{_NOTE}</p>{table(heads, rows, 'cells')}<h3>Why</h3>{said}"
    return [Section("How far they disagree", body)]


def reasons(found: Reading, own: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What of the differences the cost of looking explains."""
    told = []
    looking, price = found.looking(EVENTS), found.price(EVENTS)
    if looking and looking.a_call and looking.a_call > 0:
        who = f", of which the called bears {percent(price.callee_share)} and its caller the rest" if price else ""
        told.append(
            f"{EVENTS} times {looking.calls:,} calls, which take {duration(looking.under - looking.without)} more than "
            f"{duration(looking.without)} alone: {duration(looking.a_call)} a call{who}. So what calls often, and "
            "what is called often, looks longer than it is; where calls are few and long that would not be seen."
        )
    if LESS in own and DIRECTLY in own and EVENTS in own:
        before, after = (total_variation(own[name], own[DIRECTLY]) for name in (EVENTS, LESS))
        verdict = f"explains {percent(1 - after / before)} of it" if after < before else "does not explain it"
        told.append(
            f"With that taken away from each function by its number of calls, the distance from timing one by one goes "
            f"from {before:.1%} to {after:.1%}: the cost of being timed {verdict}."
        )
    told += _agreeing(found)
    return told


def _agreeing(found: Reading) -> list[str]:
    """Two that agree may share an error: they are held against each other and against the parts."""
    told = []
    pairs = ((EVENTS, SAMPLES), (EVENTS, EVENTS_OF_PYTHON), (SAMPLES, TIMER), (EVENTS, TIMER))
    known = [(one, other, distance) for one, other in pairs if (distance := found.distance(one, other)) is not None]
    if known:
        said = "; ".join(f"{one} and {other} {distance:.1%}" for one, other, distance in known)
        told.append(f"Distances between profilers: {said}.")
    factors = {name: factor for name in (SAMPLES, TIMER) if (factor := found.factor(name))}
    if len(factors) == 2:
        told.append(
            "Samples need not be cheap: pyinstrument is asked at each call, makes the work "
            f"{ratio(factors[SAMPLES])} times as long, and samples that slower work. The timer, which no call asks, "
            f"makes it {ratio(factors[TIMER])} times as long."
        )
    return told


def _corrected(found: Reading, events: Saved | None) -> dict[str, float]:
    looking, price = found.looking(EVENTS), found.price(EVENTS)
    if events is None or looking is None or price is None:
        return {}
    # the tree is of one visit, and what it cost is of all: what it cost itself is what its own seconds say
    alike = Looking(looking.without, events.seconds, looking.calls)
    parts = own_of_parts(corrected(events.roots, alike, price))
    return parts if sum(parts.values()) > 0 else {}


def _times(factor: Interval | None) -> str:
    if factor is None or factor["median"] is None:
        return ""
    return f"<b>{times(factor['median'])}</b><small>{interval(factor['low'], factor['high'], times)}</small>"


def _distance(seconds: Mapping[str, float], directly: Mapping[str, float]) -> str:
    return f"{total_variation(seconds, directly):.1%}" if directly else ""
