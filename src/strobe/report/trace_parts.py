"""Parts of a page of traces: steps, what the device does and why it idles, flame graphs, memory, ranks, and tables.

Tables of operators, kernels, and what changed against a baseline can be searched, sorted and filtered.
"""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

from strobe.present import parts as kit
from strobe.present.charts.curve import curve
from strobe.present.charts.rows import Segment, Stack, stacks
from strobe.present.charts.svg import meter
from strobe.present.format import cut, duration, figure, percent, size, times
from strobe.records.columns import Floats
from strobe.report.ranks import heat_map
from strobe.traces.compared import changes, compared, hidden, mean_of
from strobe.traces.flame import in_time, merged
from strobe.traces.memory import memory
from strobe.traces.operators import Kernel, Operator
from strobe.traces.rank import RankTrace
from strobe.traces.slowest import slowest

MOST_STEPS = 16
MOST_ROWS, MOST_CHANGES = 1000, 200
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
OUTSIDE = "In no operator: Python, or code that leaves no marks"  # what is unknown on a CPU


def steps(rank: RankTrace, opened: Mapping[Path, str], *, several: bool) -> kit.Section:
    """Where each step goes by phase, and what was different in the slowest ones."""
    (numbers, starts, ends), phases = rank.windows, rank.phases
    parts: list[kit.Part] = []
    if len(phases) > 1:
        parts.append(_stacks(rank, {name: (values, name) for name, values in phases.items()}))
    about = f"The host's time{f' on rank {rank.number}' * several} by phase, as far as the trace names phases."
    if len(phases) == 1:
        about = "The trace names no phases (forward, backward, optimizer, loading)."
    if len(numbers) > MOST_STEPS:
        about += f" The {MOST_STEPS} slowest of {len(numbers):,} steps."
    rows = []
    for slow in slowest(rank):
        why = ", ".join(f"{cut(name, 60)} {duration(more / 1e6)}" for name, more in slow.more)
        span = in_perfetto(rank, opened, float(starts[slow.place]), float(ends[slow.place]))
        of_median = times(slow.length / float(np.median(rank.lengths)))
        cells: list[kit.Words] = [kit.Text(f"{slow.number:,}", link=span), duration(slow.length / 1e6), of_median]
        rows.append([*cells, kit.Cell(why or "nothing by itself", "why")])
    if rows:
        heads = ("Step", "#Took", "#Of the median", "More than in the median step")
        parts += [kit.Heading("The slowest steps"), kit.Table(heads, rows, stacked=True)]
    return kit.Section("steps", "Steps", about, parts or kit.note("There is one step, and it has no named parts."))


def device(rank: RankTrace, opened: Mapping[Path, str]) -> kit.Section:
    """What the device does in each step, and why it idles; on a CPU what the threads do."""
    used = {name: (values, CSS[name]) for name, values in rank.uses.items() if values.any()}
    length, on_cpu = mean_of(rank.lengths) or 1.0, rank.device is None
    rows = []
    for name, (values, _) in used.items():
        why: kit.Words = OUTSIDE if on_cpu and name == "unknown" else f"Idle: {WHY[name]}" if name in WHY else ""
        if name in rank.idle and (longest := rank.idle[name].longest) is not None:
            piece = kit.Text(
                f"longest {duration((longest[1] - longest[0]) / 1e6)}", link=in_perfetto(rank, opened, *longest)
            )
            why = [f"{why};", piece]
        share = mean_of(values) / length
        rows.append((kit.Text(name.capitalize()), duration(mean_of(values)), percent(share), kit.Cell(why, "why")))
    parts = [
        _stacks(rank, used),
        kit.Table(("What", "#A step", "#Share", "Why, and where in Perfetto"), rows, stacked=True),
    ]
    if on_cpu:
        threads = [(name, percent(mean_of(values) / length)) for name, values in rank.threads.items()]
        parts += [kit.Heading("Threads at work"), kit.Table(("Thread", "#In operators"), threads)]
        parts += kit.note("Threads that an operator starts inside itself (OpenMP, oneDNN) leave no marks in a trace.")
    about = "A piece of time that several of these share counts as computing, then as communication."
    if len(rank.devices) > 1:
        about += f" The trace shows {len(rank.devices)} devices; this is the busiest, {rank.device}."
    if rank.columns.fault:
        about += " The file misses events, so there was less idle time than it seems."
    return kit.Section("device", "Threads" if on_cpu else "Device", about, parts)


def in_perfetto(rank: RankTrace, opened: Mapping[Path, str], start: float, end: float) -> str:
    """The address of a time in the trace, in microseconds from its first event, with some room around it."""
    room = 0.5 * (end - start)
    first, last = (1e3 * (rank.columns.origin + time) for time in (max(0.0, start - room), end + room))
    return f"{opened[rank.columns.path]}?from={first:.0f}&to={last:.0f}"


def _stacks(rank: RankTrace, values: Mapping[str, tuple[Floats, str]]) -> kit.Part:
    """A bar for each step, or for each of the slowest ones where there are many."""
    rows = []
    for place in np.sort(np.argsort(-rank.lengths, kind="stable")[:MOST_STEPS]):
        number = int(rank.windows[0][place])
        parts = [
            Segment(name.replace("_", " "), css, max(0.0, float(each[place])) / 1e6)
            for name, (each, css) in values.items()
        ]
        rows.append(Stack(f"{number:,}" if rank.marked else "all", f"step {number}", parts))
    keys = [kit.Key(f"key {css}", name.replace("_", " ")) for name, (_, css) in values.items()]
    return kit.Block([stacks(rows, "a step"), kit.Keys(keys)])


def flames(ranks: Sequence[RankTrace]) -> kit.Section:
    """What calls what: merged over the first rank's trace, and the median and the slowest step in the order of time."""
    first = ranks[0]
    order, graphs = np.argsort(first.lengths, kind="stable"), merged(first)
    for title, place in {"The median step": order[len(order) // 2], "The slowest step": order[-1]}.items():
        if len(order) > 1 or title.startswith("The slowest"):
            graphs.append(in_time(first, int(place), f"{title}, {first.windows[0][place]}, in time"))
    for rank in ranks[1:]:
        middle = int(np.argsort(rank.lengths, kind="stable")[len(rank.lengths) // 2])
        graphs.append(in_time(rank, middle, f"Rank {rank.number}, step {rank.windows[0][middle]}, in time"))
    shown = [graph for graph in graphs if graph.boxes]
    data = [
        {
            "title": f"{graph.title[:1].upper()}{graph.title[1:]}",
            "total": round(graph.total, 1),
            "names": list(graph.names),
            "lanes": graph.lanes,
            "boxes": [(depth, round(start, 1), round(length, 1), name) for depth, start, length, name in graph.boxes],
        }
        for graph in shown
    ]
    about = (
        "A box is as wide as it takes time; below it is what it calls. Those of the same callers are one, or stand in "
        "the order of time. Click, or move with the arrow keys and press Enter, to zoom; Escape shows all."
    )
    left = sum(graph.left_out for graph in shown)
    parts: list[kit.Part] = [
        kit.Flame(data),
        *kit.note(f"{left:,} of the smallest boxes are left out." if left else ""),
    ]
    return kit.Section("flame", "Flame graph", about, parts if shown else [], wide=True)


def memory_held(rank: RankTrace) -> kit.Section:
    """Memory over time, and the largest allocations by operator."""
    parts: list[kit.Part] = []
    for held in memory(rank):
        peak = float(held.held.max())
        said = f"Held on {held.device}: at most {size(peak)}"
        parts.append(kit.Chart(curve(said, list(held.times / 1e6), list(held.held), size), said))
        rows = [(name, size(most), f"{count:,}", size(total)) for name, most, count, total in held.largest]
        parts.append(kit.Table(("Operator", "#Largest piece", "#Pieces", "#In all"), rows))
    about = f"What torch's allocators held, of rank {rank.number}; pieces by the innermost operator that took them."
    told = kit.note("The trace does not record memory; profile(..., profile_memory=True) does.")
    return kit.Section("memory", "Memory", about if parts else "", parts or told)


def side_by_side(ranks: Sequence[RankTrace]) -> kit.Section:
    """What each rank does in a mean step, and which one works longer than the others; nothing for one rank."""
    if len(ranks) < 2:
        return kit.Section("ranks", "Ranks", "", [])
    found = compared(ranks)
    rows, heat = [], []
    steps = [int(step) for step in found.steps]
    for rank, work, relative in zip(ranks, found.work, found.relative, strict=True):
        length, overlap = mean_of(rank.lengths), hidden(rank)
        waits = mean_of(rank.phases["data_wait"]) if "data_wait" in rank.phases else 0.0
        rows.append(
            (
                kit.Text(f"{rank.number}", small=[cut(rank.columns.path.name, 60)]),
                duration(length),
                duration(mean_of(work)),
                duration(mean_of(rank.uses["computing"])),
                duration(mean_of(rank.uses["communication"])),
                "-" if overlap is None else percent(overlap),
                duration(waits),
            )
        )
        told = kit.Text(duration(mean_of(work)), "b", small=["work"])
        heat.append((f"{rank.number}", relative.tolist(), told))
    parts = heat_map(heat, steps)
    heads = ("Rank", "#Step", "#Work", "#Computing", "#Exposed communication", "#Hidden", "#Waits for data")
    parts.append(kit.Table(heads, rows, stacked=True))
    about = (
        "Work is a step without communication that nothing hides; hidden is the share of communication during which "
        "the rank computes. "
    )
    skew = f"In a mean step the slowest rank works {times(found.skew)} as long as the mean rank." if steps else ""
    misnumbered = any(rank.columns.rank != rank.number for rank in ranks)
    parts += kit.note("The traces have no steps of the same number." if not steps else "")
    doubtful = "The traces do not tell their ranks, or two tell the same: they are numbered in the order of the files."
    parts += kit.note(doubtful if misnumbered else "")
    return kit.Section("ranks", "Ranks", about + skew, parts)


def anchor(kind: str, name: str) -> str:
    """What a link to a row holds: the name, or of a long one its beginning and a number that tells it apart."""
    name = name.encode(errors="replace").decode()  # names of a damaged file may be no text
    short = name if len(name) <= _LONG else f"{name[:40]}~{zlib.crc32(name.encode()):08x}"
    return f"{kind}={short}"


def _named(kind: str, name: str, *small: str) -> kit.Text:
    return kit.Text(
        name, css="name", small=[one for one in small if one], link=f"#{quote(anchor(kind, name), safe='=:')}"
    )


def _time(microseconds: float, told: str = "") -> kit.Cell:
    return kit.Cell(told or duration(microseconds / 1e6), value=microseconds)


def _number(value: float, told: str = "") -> kit.Cell:
    return kit.Cell(told or f"{value:,}", value=value)


def _share(share: float) -> list[kit.Cell]:
    """As a bar, and in percent."""
    return [kit.Cell(kit.Text(after=meter(share)), "meters"), _number(share, percent(share))]


def operator_table(ranks: Sequence[RankTrace], rows: Sequence[Operator]) -> kit.Section:
    """All operators and ranges; nothing where none were recorded."""
    whole, on_device = _of_steps(ranks), any(row.device for row in rows)
    lines = []
    for row in rows[:MOST_ROWS]:
        shape, calls = row.shapes.most_common(1)[0] if row.shapes else ("", 0)
        others = f"{cut(shape, 120)} in {calls:,} calls" + f", and {len(row.shapes) - 1} others" * (len(row.shapes) > 1)
        cells = [
            _named("operator", row.name, others * bool(shape)),
            *_share((row.device if on_device else row.own) / whole),
            *(_number(row.calls), _time(row.own), _time(row.total)),
            *[_time(row.device)] * on_device,
        ]
        lines.append(kit.Row(cells, anchor=anchor("operator", row.name), kind="range" if row.is_range else "operator"))
    heads: list[kit.Words | kit.Cell] = [
        "Operator",
        kit.Cell("", "meters"),
        "#Share",
        "#Calls",
        "#Own",
        "#Total",
        *["#On the device"] * on_device,
    ]
    by = "what they started on the device" if on_device else "their own time"
    about = f"Share: of the steps' time, by {by}. Own time is without the operators they call."
    return _table("operators", about, heads, lines, len(rows))


def changed(before: Sequence[RankTrace], after: Sequence[RankTrace]) -> kit.Section:
    """What takes more or less time than in the baseline; nothing without one."""
    found = changes(before, after) if before else []
    rows = []
    for change in found[:MOST_CHANGES]:
        why = "calls" if abs(change.by_calls) > abs(change.more) / 2 else "time a call"
        cells = [
            _named(change.kind, change.name, why),
            _time(change.more, f"{'+' if change.more > 0 else '-'}{duration(abs(change.more) / 1e6)}"),
            *(_number(calls, figure(calls)) for calls in change.calls),
            *(_time(each, "" if each else "-") for each in change.each),
        ]
        rows.append(kit.Row(cells, kind=change.kind))
    heads = ("Name", "#A step", "#Calls before", "#Calls now", "#A call before", "#A call now")
    steps = [mean_of(np.concatenate([rank.lengths for rank in ranks])) for ranks in (before, after) if ranks]
    about = (
        f"A step took {duration(steps[0])} in {before[0].columns.path.name}, and takes {duration(steps[1])} now. "
        if rows
        else ""
    )
    about += "Own time of operators, and time of kernels, in a step of one rank; below the name what made most of it."
    table = kit.Table(heads, rows, "operators", "Changes", tall=True, stacked=True, search="changes")
    parts: list[kit.Part] = [table, *kit.more(len(found) - MOST_CHANGES, "names")] if rows else []
    return kit.Section("changes", "Against the baseline", about, parts, wide=True)


def kernel_table(ranks: Sequence[RankTrace], rows: Sequence[Kernel]) -> kit.Section:
    """All kernels, copies and memsets; nothing where no device was used."""
    whole, lines = _of_steps(ranks), []
    for row in rows[:MOST_ROWS]:
        name, _ = row.by.most_common(1)[0] if row.by else ("", 0)
        cells = [
            _named("kernel", row.name, f"from {name}" if name else "", "tensor cores" * row.tensor_cores),
            *_share(row.total / whole),
            *(_number(row.calls), _time(row.total), _time(row.total / row.calls), _time(row.longest)),
            _number(row.occupancy or 0, "-" if row.occupancy is None else percent(row.occupancy)),
        ]
        lines.append(kit.Row(cells, anchor=anchor("kernel", row.name), kind=row.kind))
    heads = ("Kernel", kit.Cell("", "meters"), "#Share", "#Calls", "#Total", "#Mean", "#Longest", "#Occupancy")
    about = "What ran on the device. Share: of the steps' time. Occupancy is the profiler's estimate."
    return _table("kernels", about, heads, lines, len(rows))


def _of_steps(ranks: Sequence[RankTrace]) -> float:
    """Microseconds of all steps of all ranks."""
    return sum(float(rank.lengths.sum()) for rank in ranks) or 1.0


def _table(
    what: str, about: str, heads: Sequence[kit.Words | kit.Cell], rows: Sequence[kit.Row], count: int
) -> kit.Section:
    table = kit.Table(heads, rows, "operators", what.capitalize(), tall=True, stacked=True, search=what)
    parts: list[kit.Part] = [table, *kit.more(count - MOST_ROWS, what)] if rows else []
    return kit.Section(what, what.capitalize(), about, parts, wide=True)
