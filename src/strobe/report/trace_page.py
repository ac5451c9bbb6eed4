"""One page for any traces of torch.profiler: one self-contained file, of one rank or of many."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from strobe.callbacks.tracefile import TraceError
from strobe.errors import DataError
from strobe.present.charts.rows import Segment, Stack, stacks
from strobe.present.charts.svg import meter
from strobe.present.format import counted, cut, duration, figure, percent, times
from strobe.present.page import render, write_whole
from strobe.present.parts import (
    Cell,
    Heading,
    Part,
    Row,
    Section,
    Table,
    Text,
    Tile,
    Words,
    more,
    note,
)
from strobe.records.columns import Floats
from strobe.traces.changes import changes
from strobe.traces.operators import Kernel, Operator, kernels, operators
from strobe.traces.rank import IDLE, RankTrace, read_ranks
from strobe.traces.slowest import slowest

PAGE = ".html"
MOST_STEPS, MOST_ROWS, MOST_CHANGES = 16, 1000, 200
_LONG = 80  # characters of a name that a link holds as it is
CSS = {
    "computing": "forward",
    "communication": "callbacks",
    "copies": "transfer",
    "data": "data_wait",
    "synchronisation": "s9",
    "launch": "s7",
    "queued": "idle",
    "unknown": "other",
}
WHY = {
    "data": "the host waits for data",
    "synchronisation": "the host has just waited for the device, and has queued nothing",
    "launch": "the host is still launching",
    "queued": "the work is queued but does not start: it waits for another stream, or for its launch to arrive",
    "unknown": "the trace does not tell why",
}


def write_trace_page(out: Path, traces: Sequence[Path], baseline: Sequence[Path] = ()) -> Path:
    """Write the page of some traces, whole or not at all, and return its path.

    Raises:
        DataError: A trace shows nothing, or the file cannot be written.
    """
    try:
        ranks, before = read_ranks(traces), read_ranks(baseline)
    except TraceError as error:
        raise DataError(str(error)) from None
    name = f"{traces[0].name} and {len(traces) - 1} more" if len(traces) > 1 else traces[0].name
    try:
        return write_whole(out, trace_page(ranks, before, name))
    except OSError as error:
        raise DataError(f"{out} cannot be written ({error.strerror}); give another file with --out") from None


def trace_page(ranks: Sequence[RankTrace], before: Sequence[RankTrace] = (), name: str = "") -> str:
    """The page as HTML; ``name`` is what was read, for the title and the footer."""
    rows, on_device = operators(ranks), kernels(ranks)
    page = head(ranks)
    sections = [
        steps(ranks[0], several=len(ranks) > 1),
        device(ranks[0]),
        changed(before, ranks),
        operator_table(ranks, rows),
        kernel_table(ranks, on_device),
    ]
    title = ": ".join(filter(None, (name, page["said"])))
    return render("trace.html", {**page, "title": title, "name": name, "made_from": name, "sections": sections})


def mean(values: Floats) -> float:
    """The mean of microseconds in seconds."""
    return float(np.mean(values)) / 1e6 if len(values) else 0.0


def head(ranks: Sequence[RankTrace]) -> dict[str, Any]:
    """What the trace is of, its main sentence, and the main figures."""
    first = ranks[0]
    faults = [f"{rank.columns.path.name} {rank.columns.fault}" for rank in ranks if rank.columns.fault]
    cut_off = f"{'; '.join(faults)}: what could be read until there is shown." if faults else ""
    of = "GPU" if first.device is not None else "CPU only"
    what = " · ".join(
        [counted(len(ranks), "rank"), counted(len(first.lengths), "step") if first.marked else "no steps", of]
    )
    said, rest = told(first)
    return {
        "said": said,
        "rest": rest,
        "what": what,
        "long": False,
        "error": None,
        "tiles": _tiles(ranks),
        "trust": ("fair", cut_off),
        "badges": [("fair", "partial")] if faults else [],
    }


def told(rank: RankTrace) -> tuple[str, str]:
    """The main sentence, and what it leaves open."""
    length, uses = mean(rank.lengths), {name: mean(values) for name, values in rank.uses.items()}
    idle = {cause: uses[cause] for cause in IDLE if uses.get(cause)}
    step = "step" if rank.marked else "second of the trace"
    rest = "" if rank.marked else "The trace marks no steps (profiler.step() does that): all of it is taken for one."
    if not length:
        return "The trace shows no time.", rest
    if rank.device is None:
        waiting = mean(rank.phases.get("data_wait", np.zeros(1)))
        if waiting > 0.05 * length:
            return f"Each {step} waits for data for {percent(waiting / length)} of its time.", rest
        return f"Operators run for {percent(uses['computing'] / length)} of each {step}.", rest
    share = sum(idle.values()) / length
    worst = max(idle, key=lambda cause: idle[cause], default="unknown")
    if share < 0.05:
        return f"The device works for {percent(1 - share)} of each {step}.", rest
    return (
        f"The device is idle for {percent(share)} of each {step}, mostly because {WHY[worst].partition(':')[0]}.",
        rest,
    )


def _tiles(ranks: Sequence[RankTrace]) -> list[Tile]:
    first = ranks[0]
    length = mean(first.lengths)
    much, _, unit = duration(length).partition(" ")
    steps = f"median {duration(float(np.median(first.lengths)) / 1e6)}" if first.marked else "not marked"
    tiles = [Tile("Mean step" if first.marked else "Trace", much, unit, steps)]
    for name, title in (
        ("computing", "Computing"),
        ("communication", "Communication alone"),
        ("copies", "Copies alone"),
    ):
        tiles.append(Tile(title, percent(mean(first.uses[name]) / length) if length else "-", "", "of a step"))
    return tiles


def steps(rank: RankTrace, *, several: bool) -> Section:
    """Where each step goes by phase, and what was different in the slowest ones."""
    numbers, _, _ = rank.windows
    shown = np.arange(len(numbers))
    if len(shown) > MOST_STEPS:
        shown = np.sort(np.argsort(-rank.lengths, kind="stable")[:MOST_STEPS])
    phases = rank.phases
    parts: list[Part] = []
    if len(phases) > 1:
        parts.append(_stacks(rank, shown, {name: (values, name) for name, values in phases.items()}))
    about = (
        f"Host time of {'rank ' + str(rank.number) + ' by ' if several else ''}phase, as far as the trace names phases."
    )
    if len(phases) == 1:
        about = "The trace names no phases (forward, backward, optimizer, loading)."
    if len(shown) < len(numbers):
        about += f" The {len(shown)} slowest of {len(numbers):,} steps."
    found = slowest(rank)
    if found:
        typical = float(np.median(rank.lengths))
        rows = [
            (
                f"{slow.number:,}",
                duration(slow.length / 1e6),
                times(slow.length / typical),
                ", ".join(f"{cut(name, 60)} {duration(more / 1e6)}" for name, more in slow.more) or "nothing by itself",
            )
            for slow in found
        ]
        parts += [
            Heading("The slowest steps"),
            Table(("Step", "#Took", "#Of the median", "More than in the median step"), rows),
        ]
    return Section("steps", "Steps", about, parts or note("There is one step, and it has no named parts."))


def device(rank: RankTrace) -> Section:
    """What the device does in each step, and why it idles; on a CPU what the threads do."""
    shown = np.arange(len(rank.lengths))
    if len(shown) > MOST_STEPS:
        shown = np.sort(np.argsort(-rank.lengths, kind="stable")[:MOST_STEPS])
    used = {name: (values, CSS[name]) for name, values in rank.uses.items() if values.any()}
    parts: list[Part] = [_stacks(rank, shown, used)]
    length = mean(rank.lengths) or 1.0
    rows = [
        (
            name.capitalize(),
            duration(mean(values)),
            percent(mean(values) / length),
            f"Idle: {WHY[name]}" if name in WHY else "",
        )
        for name, (values, _) in used.items()
    ]
    parts.append(Table(("What", "#A step", "#Share", ""), rows))
    if rank.device is None:
        threads = [(name, percent(mean(values) / length)) for name, values in rank.threads.items()]
        parts += [Heading("Threads at work"), Table(("Thread", "#In operators"), threads)]
        parts += note("Threads that an operator starts inside itself (OpenMP, oneDNN) leave no marks in a trace.")
    title = "Device" if rank.device is not None else "Threads"
    about = "A piece of time that several of these share counts as computing, then as communication."
    return Section("device", title, about, parts)


def _stacks(rank: RankTrace, shown: Any, values: dict[str, tuple[Floats, str]]) -> Part:
    numbers, _, _ = rank.windows
    rows = []
    for place in shown:
        parts = [
            Segment(name.replace("_", " "), css, max(0.0, float(each[place])) / 1e6)
            for name, (each, css) in values.items()
        ]
        rows.append(Stack(f"{numbers[place]:,}" if rank.marked else "all", f"step {numbers[place]}", parts))
    return stacks(rows, "a step")


def anchor(kind: str, name: str) -> str:
    """What a link to a row holds: the name, or of a long one its beginning and a number that tells it apart."""
    short = name if len(name) <= _LONG else f"{name[:40]}~{zlib.crc32(name.encode()):08x}"
    return f"{kind}={short}"


def _named(kind: str, name: str, *small: str) -> Text:
    return Text(name, css="name", small=[one for one in small if one], link=f"#{quote(anchor(kind, name), safe='=:')}")


def operator_table(ranks: Sequence[RankTrace], rows: Sequence[Operator]) -> Section:
    """All operators and ranges; nothing where none were recorded."""
    whole = sum(float(rank.lengths.sum()) for rank in ranks) or 1.0
    on_device = any(row.device for row in rows)
    lines = []
    for row in rows[:MOST_ROWS]:
        share = (row.device if on_device else row.own) / whole
        shape, calls = row.shapes.most_common(1)[0] if row.shapes else ("", 0)
        others = f"{cut(shape, 120)} in {calls:,} calls" + f", and {len(row.shapes) - 1} others" * (len(row.shapes) > 1)
        cells: list[object] = [
            _named("operator", row.name, others * bool(shape)),
            Cell(Text(after=meter(share)), "meters"),
            Cell(percent(share), value=share),
            Cell(f"{row.calls:,}", value=row.calls),
            Cell(duration(row.own / 1e6), value=row.own),
            Cell(duration(row.total / 1e6), value=row.total),
        ]
        cells += [Cell(duration(row.device / 1e6), value=row.device)] * on_device
        lines.append(Row(cells, anchor=anchor("operator", row.name), kind="range" if row.is_range else "operator"))
    heads: list[Words | Cell] = [
        "Operator",
        Cell("", "meters"),
        "#Share",
        "#Calls",
        "#Own",
        "#Total",
        *["#On the device"] * on_device,
    ]
    by = "what they started on the device" if on_device else "their own time"
    about = f"Share: of the steps' time, by {by}. Own time is without the operators they call."
    return _table("operators", about, heads, lines, len(rows))


def changed(before: Sequence[RankTrace], after: Sequence[RankTrace]) -> Section:
    """What takes more or less time than in the baseline; nothing without one."""
    found = changes(before, after) if before else []
    rows = []
    for change in found[:MOST_CHANGES]:
        link = _named(
            change.kind, change.name, "calls" if abs(change.by_calls) > abs(change.more) / 2 else "time a call"
        )
        calls, each = change.calls, [duration(time / 1e6) if time else "-" for time in change.each]
        cells: list[object] = [
            link,
            Cell(f"{'+' if change.more > 0 else '-'}{duration(abs(change.more) / 1e6)}", value=change.more),
            Cell(figure(calls[0]), value=calls[0]),
            Cell(figure(calls[1]), value=calls[1]),
            Cell(each[0], value=change.each[0]),
            Cell(each[1], value=change.each[1]),
        ]
        rows.append(Row(cells, kind=change.kind))
    heads = ("Name", "#A step", "#Calls before", "#Calls now", "#A call before", "#A call now")
    steps = [mean(np.concatenate([rank.lengths for rank in ranks])) for ranks in (before, after) if ranks]
    about = (
        f"A step took {duration(steps[0])} in {before[0].columns.path.name}, and takes {duration(steps[1])} now. "
        if rows
        else ""
    )
    about += "Own time of operators, and time of kernels, in a step of one rank; below the name what made most of it."
    table = Table(heads, rows, "operators", "Changes", tall=True, stacked=True, search="changes")
    parts: list[Part] = [table, *more(len(found) - MOST_CHANGES, "names")] if rows else []
    return Section("changes", "Against the baseline", about, parts, wide=True)


def kernel_table(ranks: Sequence[RankTrace], rows: Sequence[Kernel]) -> Section:
    """All kernels, copies and memsets; nothing where no device was used."""
    whole = sum(float(rank.lengths.sum()) for rank in ranks) or 1.0
    lines = []
    for row in rows[:MOST_ROWS]:
        name, _ = row.by.most_common(1)[0] if row.by else ("", 0)
        lines.append(
            Row(
                [
                    _named("kernel", row.name, f"from {name}" if name else "", "tensor cores" * row.tensor_cores),
                    Cell(Text(after=meter(row.total / whole)), "meters"),
                    Cell(percent(row.total / whole), value=row.total),
                    Cell(f"{row.calls:,}", value=row.calls),
                    Cell(duration(row.total / 1e6), value=row.total),
                    Cell(duration(row.total / row.calls / 1e6), value=row.total / row.calls),
                    Cell(duration(row.longest / 1e6), value=row.longest),
                    Cell("-" if row.occupancy is None else percent(row.occupancy), value=row.occupancy or 0),
                ],
                anchor=anchor("kernel", row.name),
                kind=row.kind,
            )
        )
    heads = ("Kernel", Cell("", "meters"), "#Share", "#Calls", "#Total", "#Mean", "#Longest", "#Occupancy")
    about = "What ran on the device. Share: of the steps' time. Occupancy is the profiler's estimate."
    return _table("kernels", about, heads, lines, len(rows))


def _table(what: str, about: str, heads: Sequence[Words | Cell], rows: Sequence[Row], count: int) -> Section:
    table = Table(heads, rows, "operators", what.capitalize(), tall=True, stacked=True, search=what)
    parts: list[Part] = [table, *more(count - MOST_ROWS, what)] if rows else []
    return Section(what, what.capitalize(), about, parts, wide=True)
