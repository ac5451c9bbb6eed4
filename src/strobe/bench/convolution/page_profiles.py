"""Where the time of im2col goes by each profiler, and how far they disagree, for the page of ``suite=convolution``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strobe.bench.convolution.call_tree import tree_text
from strobe.bench.convolution.flame import flame_graph
from strobe.bench.convolution.page_disagreement import disagreements
from strobe.bench.convolution.reading import read
from strobe.bench.convolution.saved import Saved, load_profile
from strobe.bench.convolution.study import EVENTS, EVENTS_OF_PYTHON, LOOKING, SAMPLES, TIMER
from strobe.bench.harness.declare import Section
from strobe.bench.harness.schedule import slug
from strobe.report.html.pieces import more, named, table
from strobe.report.html.text import duration, esc

_ROWS = 12  # of the table of functions
_LEGEND = (
    "In a flame graph each box is a call, as wide as its share of the time, above that of its caller; each module "
    "has a colour, and functions in C are grey. The tree below it says the same in figures: the share of each call "
    "with what it calls, from 0.5% on."
)
_HOW = {
    EVENTS: "Each call and each return is timed, of functions in C too; counts are exact.",
    EVENTS_OF_PYTHON: "As the document has it: functions in C are not timed, and their time is their callers'.",
    SAMPLES: "The stack is noted each millisecond; the interpreter asks at each call whether it is time.",
    TIMER: "The stack is noted each millisecond, when the system's timer interrupts: no call pays for it, but a sample "
    "waits until a function begins, a loop turns or a call of C ends.",
}


def profile_sections(record: Mapping[str, Any], folder: Path) -> list[Section]:
    """Events, samples and their disagreement; of a profile that is not there nothing.

    Args:
        record: Of the suite.
        folder: The result's, in which cells left their profiles.
    """
    found = read(record)
    profiles = {
        name: profile
        for name in LOOKING
        if name in found.profilers
        and (profile := load_profile(folder / "cells" / slug(found.profilers[name]["name"]))) is not None
    }
    return [
        *_section("By events: cProfile", profiles, (EVENTS, EVENTS_OF_PYTHON)),
        *_section("By samples: pyinstrument and a timer", profiles, (SAMPLES, TIMER)),
        *disagreements(found, profiles.get(EVENTS)),
    ]


def _section(title: str, profiles: Mapping[str, Saved], names: tuple[str, ...]) -> list[Section]:
    styled = next(iter(profiles), None)  # one that is on the page, for all
    parts = [_profile(name, profiles[name], styled=name == styled) for name in names if name in profiles]
    return [Section(title, f"<p>{_LEGEND}</p>{''.join(parts)}")] if parts else []


def _profile(name: str, profile: Saved, *, styled: bool) -> str:
    """What one profiler saw: its table, if it counts, its tree and its flame graph."""
    how = _HOW[name]
    if profile.samples is not None:
        how += f" Here {profile.samples:,} samples of {duration(profile.seconds)}."
    drawing = flame_graph(profile.roots, f"Flame graph of im2col by {name}", styled=styled)
    tree = f'<div class="scroll"><pre>{esc(tree_text(profile.roots), 20_000)}</pre></div>'
    head = f'<div><h3>{esc(name)}</h3><p class="advice">{esc(how, 2000)}</p></div>'
    return f"{head}{_functions(profile)}<figure>{drawing}</figure>{tree}"


def _functions(profile: Saved) -> str:
    if not profile.rows:
        return ""
    rows = [
        (
            named(row.name, "code"),
            f"{row.calls:,}",
            duration(row.own),
            duration(row.own / row.calls) if row.calls else "",
            duration(row.cumulative),
        )
        for row in profile.rows[:_ROWS]
    ]
    heads = ("Function", "#Calls", "#Own time", "#A call", "#With what it calls")
    return table(heads, rows) + more(len(profile.rows) - _ROWS, "functions, of less time")
