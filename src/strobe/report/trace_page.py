"""One page for any traces of torch.profiler: one self-contained file, of one rank or of many."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strobe.callbacks.tracefile import TraceError
from strobe.errors import DataError
from strobe.present.format import counted, duration, percent
from strobe.present.page import render, write_whole
from strobe.present.parts import Tile
from strobe.report.trace_steps import WHY, device, flames, memory_held, side_by_side, steps
from strobe.report.trace_tables import changed, kernel_table, operator_table
from strobe.traces.compared import mean_of
from strobe.traces.operators import kernels, operators
from strobe.traces.rank import IDLE, RankTrace, read_ranks

PAGE = ".html"


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
        side_by_side(ranks),
        changed(before, ranks),
        operator_table(ranks, rows),
        kernel_table(ranks, on_device),
        flames(ranks),
        memory_held(ranks[0]),
    ]
    title = ": ".join(filter(None, (name, page["said"])))
    return render("trace.html", {**page, "title": title, "name": name, "made_from": name, "sections": sections})


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
    length, uses = mean_of(rank.lengths), {name: mean_of(values) for name, values in rank.uses.items()}
    idle = {cause: uses[cause] for cause in IDLE if uses.get(cause)}
    step = "step" if rank.marked else "second of the trace"
    rest = "" if rank.marked else "The trace marks no steps (profiler.step() does that): all of it is taken for one."
    if not length:
        return "The trace shows no time.", rest
    if rank.device is None:
        waiting = mean_of(rank.phases.get("data_wait", np.zeros(1)))
        does = {
            "waits for data": waiting,
            "communicates, and does nothing else meanwhile,": uses["communication"],
            "computes in operators": uses["computing"] - waiting,
            "is in no operator": uses["unknown"],
        }
        most = max(does, key=lambda name: does[name])
        return f"Each {step} {most} for {percent(does[most] / length)} of its time.", rest
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
    length = mean_of(first.lengths)
    much, _, unit = duration(length).partition(" ")
    steps = f"median {duration(float(np.median(first.lengths)) / 1e6)}" if first.marked else "not marked"
    tiles = [Tile("Mean step" if first.marked else "Trace", much, unit, steps)]
    for name, title in (
        ("computing", "Computing"),
        ("communication", "Communication alone"),
        ("copies", "Copies alone"),
    ):
        tiles.append(Tile(title, percent(mean_of(first.uses[name]) / length) if length else "-", "", "of a step"))
    return tiles
