"""One page for any traces of torch.profiler: one self-contained file, of one rank or of many."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from strobe.callbacks.tracefile import TraceError
from strobe.diagnose.traced import places, traced_record
from strobe.errors import DataError, disk_errors
from strobe.present import parts as kit
from strobe.present.format import counted, duration, percent
from strobe.present.page import render, write_whole
from strobe.records.places import newest_of
from strobe.records.run import Record
from strobe.report import trace_parts
from strobe.report.cards import findings
from strobe.report.footer import TRACES
from strobe.traces.compared import mean_of
from strobe.traces.evidence import MOST_BYTES, text_bytes
from strobe.traces.operators import kernels, operators
from strobe.traces.rank import IDLE, RankTrace, Read, read_ranks, read_trace

PAGE = ".html"
PERFETTO = "http://127.0.0.1:9001"  # as strobe view --perfetto serves it


def write_trace_page(out: Path, traces: Sequence[Path], baseline: Sequence[Path] = (), read: Read = read_trace) -> Path:
    """Write the page of some traces, whole or not at all, and return its path.

    Raises:
        DataError: A trace shows nothing, or the file cannot be written.
    """
    try:
        ranks, before = read_ranks(traces, read), read_ranks(baseline)
    except TraceError as error:
        raise DataError(str(error)) from None
    name = f"{traces[0].name} and {len(traces) - 1} more" if len(traces) > 1 else traces[0].name
    with disk_errors(lambda why: f"{out} cannot be written ({why}); give another file with --out"):
        return write_whole(out, trace_page(ranks, before, name, traces))


def write_run_page(run_dir: Path, record: Record, read: Read) -> Path | None:
    """Write the page of a run's newest traces, one of each rank; None if it has none, or they are too large."""
    with suppress(OSError, DataError):  # the run's log says what is wrong with a trace
        return write_trace_page(run_dir / TRACES, found, (), read) if (found := _of_run(run_dir, record)) else None
    return None


def first_trace(run_dir: Path, record: Record, read: Read) -> RankTrace | None:
    """What the newest trace of a run's first rank shows; None if the run has no trace, or a damaged one."""
    with suppress(OSError, TraceError):
        return next(iter(read_ranks(_of_run(run_dir, record)[:1], read)), None)
    return None


def _of_run(run_dir: Path, record: Record) -> list[Path]:
    """The newest trace of each rank; nothing if reading them would keep the run waiting."""
    named = [run_dir / path for path in record.items("traces") if isinstance(path, str)]
    traces = newest_of(path for path in named if path.is_file())
    return traces if sum(map(text_bytes, traces)) <= MOST_BYTES else []


def trace_page(
    ranks: Sequence[RankTrace], before: Sequence[RankTrace] = (), name: str = "", files: Sequence[Path] = ()
) -> str:
    """The page as HTML; ``name`` is what was read, for title and footer, ``files`` the traces as they were named."""
    opened = {path: f"{PERFETTO}/{place}" for place, path in enumerate(files or [one.columns.path for one in ranks], 1)}
    rows, on_device = operators(ranks), kernels(ranks)
    first, (said, rest) = ranks[0], told(ranks[0])
    faults = [f"{rank.columns.path.name} {rank.columns.fault}" for rank in ranks if rank.columns.fault]
    cut_off = f"{'; '.join(faults)}: what could be read until there is shown."
    seen = counted(len(first.lengths), "step") if first.marked else "no steps"
    head = [
        *([kit.Paragraph(rest, "lede")] if rest else []),
        *([kit.Paragraph(cut_off, "trust fair")] if faults else []),
        *kit.tiles(_tiles(ranks)),
        kit.Paragraph(name, "run-name"),
    ]
    sections = [
        what_to_change(ranks[0], opened),
        trace_parts.steps(ranks[0], opened, several=len(ranks) > 1),
        trace_parts.device(ranks[0], opened),
        trace_parts.side_by_side(ranks),
        trace_parts.changed(before, ranks),
        trace_parts.operator_table(ranks, rows),
        trace_parts.kernel_table(ranks, on_device),
        trace_parts.flames(ranks),
        trace_parts.memory_held(ranks[0]),
    ]
    page = kit.Page(
        ": ".join(filter(None, (name, said))),
        (counted(len(ranks), "rank"), seen, "GPU" if first.device is not None else "CPU only"),
        said,
        head,
        sections,
        f"{name}; works offline.",
        [("fair", "partial")] if faults else [],
        "trace",
    )
    return render(page)


def what_to_change(rank: RankTrace, opened: Mapping[Path, str]) -> kit.Section:
    """What the rules for runs find in the trace alone, with the place of the evidence in Perfetto."""
    command = kit.Command(f"strobe view {shlex.join(map(str, opened))} --perfetto")
    served: list[kit.Part] = [*kit.note("Links to Perfetto open while this runs:"), command]
    if rank.columns.fault:
        why = kit.note("The rules for a run's steps need a whole trace.")
        return kit.Section("findings", "What to change", "", [*why, *served])
    section, where = findings(traced_record(rank)), places(rank)
    cards: list[Mapping[str, Any]] = []
    for card in section.parts[0].cards if section.parts and isinstance(section.parts[0], kit.Cards) else ():
        texts = list(card["texts"])
        if span := where.get(card["cause"].replace(" ", "_")):
            place = kit.Text("The longest one in Perfetto", link=trace_parts.in_perfetto(rank, opened, *span))
            texts.insert(1, kit.Paragraph(place, "note"))
        cards.append({**card, "texts": texts})
    told = kit.note("The rules for a run's steps find nothing here; they see only what the trace tells.")
    parts: list[kit.Part] = [kit.Cards(cards)] if cards else told
    return kit.Section("findings", "What to change", section.note, [*parts, *served])


def told(rank: RankTrace) -> tuple[str, str]:
    """The main sentence, and what it leaves open."""
    length, uses = mean_of(rank.lengths), {name: mean_of(values) for name, values in rank.uses.items()}
    idle = {cause: uses[cause] for cause in IDLE if uses.get(cause)}
    of = "each step" if rank.marked else "the trace"
    rest = "" if rank.marked else "The trace marks no steps (profiler.step() does that): all of it is taken for one."
    if not length:
        return "The trace shows no time.", rest
    if rank.columns.fault:
        seen = f"Part of the trace is missing: {len(rank.columns.start):,} events could be read."
        return seen, f"{rest} Idle time is shorter than it seems, and totals are larger.".strip()
    if rank.device is None:
        waiting = mean_of(rank.phases.get("data_wait", np.zeros(1)))
        without_wait = ", not counting those that load data" if waiting else ""
        does = {
            "waits for data for {} of its time": waiting,
            "communicates for {} of its time, and does nothing else meanwhile": uses["communication"],
            f"computes in operators for {{}} of its time{without_wait}": uses["computing"] - waiting,
            "runs no operator for {} of its time: that is Python, or code that leaves no marks": uses["unknown"],
        }
        most = max(does, key=lambda told: does[told])
        return f"{of.capitalize()} {most.format(percent(does[most] / length))}.", rest
    share = sum(idle.values()) / length
    worst = max(idle, key=lambda cause: idle[cause], default="unknown")
    if share < 0.05:
        return f"The device works for {percent(1 - share)} of {of}.", rest
    why = trace_parts.WHY[worst].partition(":")[0]
    return f"The device is idle for {percent(share)} of {of}, mostly because {why}.", rest


def _tiles(ranks: Sequence[RankTrace]) -> list[kit.Tile]:
    first = ranks[0]
    length = mean_of(first.lengths)
    much, _, unit = duration(length).partition(" ")
    steps = f"median {duration(float(np.median(first.lengths)) / 1e6)}" if first.marked else "not marked"
    tiles = [kit.Tile("Mean step" if first.marked else "Trace", much, unit, steps)]
    for name in ("computing", "communication", "copies") if length and not first.columns.fault else ():
        title = f"{name.capitalize()}{' alone' * (name != 'computing')}"
        tiles.append(
            kit.Tile(title, percent(mean_of(first.uses[name]) / length), "", "of a step" if first.marked else "of it")
        )
    return tiles
