"""Several ranks: who works how long in which part of the run, and who waits for whom."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from markupsafe import Markup

from strobe.present.charts.rows import ROW
from strobe.present.charts.svg import anchor_at, label, rect, svg
from strobe.present.format import counted, duration, interval, percent, times
from strobe.present.parts import Key, Keys, Line, Part, Rows, Section, Table, Text, more, note
from strobe.records.run import Record, as_number

MOST = 16  # ranks shown, the slowest
SHADES = 6  # of the heat map: as long as the mean rank, and so much longer each
SHADE = 0.1
_PHASES = 2  # named of each rank


def ranks(record: Record) -> Section:
    """The section; empty for a single process, and where nothing is known."""
    known, world = record.items("ranks", "ranks"), record.count("ranks", "world_size") or 0
    own = {
        rank: seconds for rank, value in record.mapping("ranks", "own_seconds").items() if (seconds := as_number(value))
    }
    if not own:
        told = "Only rank 0 was recorded: what the ranks do for each other is not known."
        if len(known) > 1:
            told = "How long ranks wait for each other is not known: their steps are few, or do not tell."
        return Section("ranks", "Ranks", "", note(told) if (record.count("world_size") or 1) > 1 else [])
    shown = sorted(sorted(own, key=lambda rank: -own[rank])[:MOST], key=lambda rank: (len(rank), rank))
    slow, low, high = (record.number("ranks", "slowdown", end) for end in ("median", "low", "high"))
    about = "Own work is a step without waiting for other ranks."
    if slow is not None:
        calm = "" if record.text("ranks", "pattern") else "No rank is slow: they differ by chance. "
        about = f"{calm}{about} In a mean step the slowest one works "
        about += f"{times(slow)} as long as the mean rank ({interval(low, high, times)})."
    coverage = record.number("ranks", "coverage")
    left = [f"{counted(world - len(known), 'rank')} left no rows here."] if world > len(known) else []
    left += [f"All have rows of {percent(coverage)} of the steps."] if coverage is not None and 0 < coverage < 1 else []
    parts: list[Part] = [*_heat(record, shown, own), _table(record, shown)]
    return Section("ranks", "Ranks", about, [*parts, *more(len(own) - len(shown), "faster ranks"), *note(*left)])


def _heat(record: Record, shown: list[str], own: dict[str, float]) -> list[Part]:
    """A row for each rank, a column for each part of the run, darker where the rank works longer than the mean one."""
    steps = [int(step) for value in record.items("ranks", "heat", "steps") if (step := as_number(value)) is not None]
    named = zip(map(str, record.items("ranks", "ranks")), record.items("ranks", "heat", "ranks"), strict=False)
    known = [(rank, values) for rank, values in named if isinstance(values, list) and len(values) == len(steps)]
    rows = [
        (rank, [as_number(value) for value in values], Text(duration(own[rank]), "b", small=["own work"]))
        for rank, values in known
        if rank in shown
    ]
    return heat_map(rows, steps)


def heat_map(ranks: Iterable[tuple[str, Sequence[float | None], Text]], steps: Sequence[int]) -> list[Part]:
    """A row for each rank, with multiples of the mean rank's time at each of these steps, and its own figure."""
    lines = []
    for rank, values, figure in ranks if steps else ():
        shades = [min(SHADES - 1, max(0, math.floor(((value or 1.0) - 1) / SHADE + 0.5))) for value in values]
        drawn, start = list[Markup](), 0
        for shade, same in groupby(shades):  # neighbours of one shade are one box
            end = start + len(list(same))
            title = f"from step {steps[start]:,}: {_meaning(shade)}"
            drawn.append(rect(start / len(shades), 2, (end - start) / len(shades), ROW - 4, f"heat-{shade}", title))
            start = end
        said = f"rank {rank}: {' '.join(map(str, shades))} tenths longer than the mean rank"
        lines.append(Line(Text(f"Rank {rank}", "b"), svg(ROW, said, drawn), figure))
    if not lines:
        return []
    marks = sorted({0, len(steps) // 2, len(steps) - 1})
    places = [(0.0 if mark == 0 else (mark + 0.5) / len(steps), steps[mark]) for mark in marks]
    axis = svg(20, "", [label(place, 15, f"{step:,}", "axis", anchor_at(place)) for place, step in places])
    return [Rows(lines, axis, "step"), Keys([Key(f"key heat-{shade}", _meaning(shade)) for shade in range(SHADES)])]


def _meaning(shade: int) -> str:
    if not shade:
        return "as the mean rank, or faster"
    return f"{percent(shade * SHADE)} longer" + " or more" * (shade == SHADES - 1)


def _table(record: Record, shown: list[str]) -> Table:
    rows = []
    for rank in shown:
        known = record.mapping("ranks", "phases", rank).items()
        phases = {name: seconds for name, value in known if (seconds := as_number(value)) and seconds > 0}
        longest = sorted(phases, key=lambda name: -phases[name])[:_PHASES]
        mostly = ", ".join(f"{name.replace('_', ' ')} {duration(phases[name])}" for name in longest)
        waits = record.number("ranks", "waits", rank)
        rows.append((rank, "" if waits is None else duration(waits), mostly))
    return Table(("Rank", "#Waits for others", "Most of its own work"), rows)
