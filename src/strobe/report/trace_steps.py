"""Parts of a page of traces: steps, what the device does and why it idles, flame graphs, memory, ranks side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from strobe.present import parts as kit
from strobe.present.charts.curve import curve
from strobe.present.charts.rows import Segment, Stack, stacks
from strobe.present.format import cut, duration, percent, size, times
from strobe.records.columns import Floats
from strobe.report.ranks import heat_map
from strobe.traces.compared import compared, hidden, mean_of
from strobe.traces.flame import in_time, merged
from strobe.traces.memory import memory
from strobe.traces.rank import RankTrace
from strobe.traces.slowest import slowest

MOST_STEPS = 16
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
        figure = kit.Text(duration(mean_of(work)), "b", small=["work"])
        heat.append((f"{rank.number}", relative.tolist(), figure))
    parts = heat_map(heat, steps)
    heads = ("Rank", "#Step", "#Work", "#Computing", "#Exposed communication", "#Hidden", "#Waits for data")
    parts.append(kit.Table(heads, rows, stacked=True))
    about = (
        "Work is a step without communication that nothing hides; hidden is the share of communication during which "
        "the rank computes. "
    )
    skew = f"In a mean step the slowest rank works {times(found.skew)} as long as the mean rank." if steps else ""
    told = [rank for rank in ranks if rank.columns.rank != rank.number]
    parts += kit.note("The traces have no steps of the same number." if not steps else "")
    doubtful = "The traces do not tell their ranks, or two tell the same: they are numbered in the order of the files."
    parts += kit.note(doubtful if told else "")
    return kit.Section("ranks", "Ranks", about + skew, parts)
