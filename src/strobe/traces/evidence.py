"""What a run's traces show: how busy the GPU and the loaders were, and who waited for whom; times in seconds."""

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from strobe.callbacks.tracefile import TraceError
from strobe.records.columns import ANNOTATION, COPY, KERNEL, LOADER, NONE, ON_DEVICE, OPERATOR, STEP, Floats, Ints
from strobe.records.places import fault_of
from strobe.traces.cover import Cover
from strobe.traces.operators import groups, multiplies_float32, uses_tensor_cores
from strobe.traces.rank import ALLOCATES, RankTrace, Read, kind_of_copy, read_trace

NEWEST = 3  # traces that are read of a run
MOST_BYTES = 100_000_000  # of their text: some seconds

_log = logging.getLogger(__name__)
_WORKER = re.compile(r"loader (?:in the )?(worker \d+|process \d+|training process)")

Row = tuple[Any, Sequence[float]]  # what is counted, and what is added up of it; microseconds first


def read_evidence(paths: Sequence[Path], read: Read = read_trace) -> dict[str, Any] | None:
    """The ``trace_evidence`` of a run's newest traces; None if none of them holds a step.

    At most ``NEWEST`` traces with together ``MOST_BYTES`` are read. One that is larger by itself, or that cannot be
    read, is left out with a warning.
    """
    ranks, left = [], MOST_BYTES
    # By their names, `<worker>.<nanoseconds>.pt.trace.json`.
    for path in sorted(paths, key=lambda path: re.findall(r"\.(\d{15,})\.", path.name), reverse=True)[:NEWEST]:
        try:
            size = text_bytes(path)
            if size > MOST_BYTES:  # the size that a cut file tells is none
                raise TraceError(fault_of(path) or f"{path} is too large; set profiler.max_mb")
            if size <= left:
                rank = read(path)
                if rank.columns.fault:
                    raise TraceError(f"{path} {rank.columns.fault}; copy it again or record it again")
                ranks.append(rank)
                left -= size
        except (OSError, TraceError) as error:
            _log.warning("A trace could not be searched for causes: %s", error)
    return trace_evidence(*ranks)


def trace_evidence(*ranks: RankTrace) -> dict[str, Any] | None:
    """What the steps (`ProfilerStep#` ranges) of traces tell together; None without any step.

    Returns:
        - `steps`, and their mean `step_seconds`, which recording has made longer.
        - `device_busy`: the share of that in which the busiest GPU had a kernel, copy or memset in work. None without
          a GPU, as are the other figures of kernels.
        - `busy_seconds`: how long the busiest GPU works on what a step gives it. A host that runs ahead ends its step
          sooner, and then the trace holds the rest, because torch waits for the GPU before it stops recording.
        - `syncs`: in which operator's `name` (or that of the call, outside of all) and in which `phase` the host
          waited for the GPU: `seconds`, with what else an `aten::` operator does, and `calls` a step, longest first.
          `sync_seconds`: a step, only the waits.
        - `kernels_per_step`, `kernel_seconds_median`, and of the kernels' time `tensor_core_share` and
          `float32_product_share`: of products of float32 matrices that do not use these cores.
        - `copies`: `kind`, such as "HtoD pageable", and `seconds`, `bytes` and `calls` a step, longest first.
        - `loader_workers`: the share of the steps' time in which each had a training batch in work.
    """
    seen = [(rank, rank.covered(rank.columns.kind == STEP)) for rank in ranks if rank.marked]
    steps, length = sum(len(rank.lengths) for rank, _ in seen), sum(windows.total for _, windows in seen)
    if not length:
        return None
    gpus = [(rank, windows) for rank, windows in seen if rank.device is not None]
    busy = [max((one & windows).total for one in _devices(rank)) for rank, windows in gpus]
    given = [max(one.total for one in _devices(gpu[0], _submitted(*gpu))) for gpu in gpus]
    work = [each for gpu in gpus for each in _given(*gpu)]
    kernels = np.concatenate([np.empty(0), *(lengths for kind, _, lengths, _ in work if kind == KERNEL)])
    on_cores, products = (
        sum(lengths.sum() for kind, name, lengths, _ in work if kind == KERNEL and test(name))
        for test in (uses_tensor_cores, multiplies_float32)
    )
    waits = [(rank, windows, _waits(rank, windows)) for rank, windows in gpus]
    waiting = sum((rank.covered(calls) & windows).total for rank, windows, calls in waits)
    syncs = _added(row for rank, _, calls in waits for row in _callers(rank, calls))
    copies = _added(
        (kind_of_copy(name), (lengths.sum(), size, len(lengths))) for kind, name, lengths, size in work if kind == COPY
    )
    loaders = _added(row for one in seen for row in _loaders(*one))
    return {
        "steps": steps,
        "step_seconds": length / steps / 1e6,
        "device_busy": sum(busy) / length if gpus else None,
        # No less than was seen: other recorders may stop before the GPU is done.
        "busy_seconds": sum(map(max, busy, given)) / steps / 1e6 if gpus else None,
        "syncs": [
            {"name": name, "phase": phase, "seconds": time / steps / 1e6, "calls": calls / steps}
            for (name, phase), (time, calls) in syncs
        ],
        "sync_seconds": waiting / steps / 1e6 if gpus else None,
        "kernels_per_step": len(kernels) / steps if gpus else None,
        "kernel_seconds_median": float(np.median(kernels)) / 1e6 if len(kernels) else None,
        "tensor_core_share": float(on_cores / kernels.sum()) if kernels.any() else None,
        "float32_product_share": float(products / kernels.sum()) if kernels.any() else None,
        "copies": [
            {"kind": kind, "seconds": time / steps / 1e6, "bytes": size / steps, "calls": calls / steps}
            for kind, (time, size, calls) in copies
        ],
        "loader_workers": {name: busy / length for name, (busy,) in sorted(loaders)},
    }


def _added(rows: Iterable[Row]) -> list[tuple[Any, list[float]]]:
    """The sums of each key, the one with most time first."""
    found: dict[Any, list[Sequence[float]]] = defaultdict(list)
    for key, values in rows:
        found[key].append(values)
    return sorted(((key, np.sum(each, 0).tolist()) for key, each in found.items()), key=lambda row: -row[1][0])


def _devices(rank: RankTrace, work: Ints | None = None) -> Iterator[Cover]:
    """When each device is at work, or at this work."""
    places = rank.columns.of(*ON_DEVICE) if work is None else work
    for device in rank.devices:
        yield rank.covered(places[rank.columns.device[places] == device])


def _submitted(rank: RankTrace, windows: Cover, *kinds: int) -> Ints:
    """The work of these kinds, or any, that steps gave to devices, however late it was done."""
    places = rank.columns.of(*(kinds or ON_DEVICE))
    calls = rank.started_by[places]
    return places[windows.hold(rank.columns.start[np.where(calls >= 0, calls, places)])]


def _given(rank: RankTrace, windows: Cover) -> Iterator[tuple[int, str, Floats, float]]:
    """Kind, name, lengths and bytes of that work."""
    at, given = rank.columns, _submitted(rank, windows, KERNEL, COPY)
    for name, inside in groups(at.name[given]).items():
        chosen = given[inside]
        yield int(at.kind[chosen[0]]), at.names.texts[name], at.length[chosen], float(at.size[chosen].sum())


def _waits(rank: RankTrace, windows: Cover) -> Ints:
    """The calls in which, within steps, the training thread waits for a device, or autograd's threads for it."""
    at, calls = rank.columns, rank.waits
    autograd = at.matching(lambda text: text.startswith("autograd::engine::"))[at.name] & (at.kind == OPERATOR)
    process, _ = at.tracks[rank.main]
    threads = [rank.main, *(track for track in np.unique(at.track[autograd]) if at.tracks[track][0] == process)]
    return calls[np.isin(at.track[calls], threads) & windows.hold(at.start[calls])]


def _callers(rank: RankTrace, calls: Ints) -> Iterator[Row]:
    """The length of each call's caller by its name and the phase, the training thread's outermost annotation around it.

    The caller is the outermost of the `aten::` operators directly around the call, which is the one Python called:
    `aten::item` calls `aten::_local_scalar_dense`. Without one it is the innermost operator of another kind, and
    without any operator the call itself, as a call for memory always is: any operator may need some. A copy and the
    wait for it count as one call of their caller.
    """
    at, texts, (parent, _) = rank.columns, rank.columns.names.texts, rank.nest
    phases = np.flatnonzero((at.kind == ANNOTATION) & (at.track == rank.main))
    phases = phases[np.lexsort((-at.length[phases], at.start[phases]))]
    reached = np.maximum.accumulate(np.append(-np.inf, at.end[phases]))[:-1]
    phases = phases[at.start[phases] >= reached]
    latest = np.append(phases, NONE)[np.searchsorted(at.start[phases], at.start[calls], "right") - 1]
    counted: set[int] = set()
    for call, phase in zip(calls.tolist(), latest.tolist(), strict=True):
        above, place = list[int](), call if not ALLOCATES.fullmatch(texts[at.name[call]]) else NONE
        while place != NONE and (place := int(parent[place])) >= 0:
            if at.kind[place] == OPERATOR:
                above.append(place)
        aten = list(takewhile(lambda place: texts[at.name[place]].startswith("aten::"), above))
        caller = [*aten[-1:], *above[:1], call][0]
        inside = phase != NONE and at.start[call] < at.end[phase]
        key = texts[at.name[caller]], texts[at.name[phase]] if inside else None
        new = caller not in counted
        yield key, (at.length[caller] * new if aten else at.length[call], new)
        counted.add(caller)


def _loaders(rank: RankTrace, windows: Cover) -> Iterator[Row]:
    """How long within steps each worker has a training batch in work."""
    at = rank.columns
    batches = (at.kind == LOADER) & at.matching("batch".__eq__)[at.name]
    workers: dict[str, list[int]] = defaultdict(list)
    for track in np.unique(at.track[batches]).tolist():
        if title := _WORKER.match(at.processes.get(at.tracks[track][0], "")):
            workers[title[1]].append(track)
    for name, tracks in workers.items():
        yield name, [(rank.covered(batches & np.isin(at.track, tracks)) & windows).total]


def text_bytes(path: Path) -> int:
    """A trace's size when unpacked, from gzip's last four bytes (RFC 1952, 2.3.1)."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        size = file.seek(0, 2)
        if packed and size >= 4:
            file.seek(-4, 2)
            return max(size, int.from_bytes(file.read(4), "little"))
    return size
