"""What a run's rules say of a trace alone, and where in it the evidence lies."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from strobe.callbacks.tracefile import Event
from strobe.diagnose.rank import diagnose
from strobe.diagnose.trace import trace_evidence
from strobe.records.columns import CALL, COPY, KERNEL, KINDS, LOADER, MEMORY, NONE, SET, STEP
from strobe.records.run import Record
from strobe.traces.cover import NOTHING, Cover
from strobe.traces.rank import RankTrace

MOST = 200_000  # events that are searched for evidence: those of the first steps
_CATEGORY = {kind: category for category, kind in reversed(KINDS.items())} | {STEP: "user_annotation"}
_LINKED = (CALL, KERNEL, COPY, SET)


def traced_record(rank: RankTrace) -> Record:
    """A record of what the trace tells of its steps, with findings; without any where it marks no steps.

    Predictions have no interval to rely on: the steps were slowed down by being recorded.
    """
    seconds = float(rank.lengths.mean()) / 1e6
    summary: dict[str, Any] = {
        "status": "completed",
        "script": "the traced program",
        "batch_size": 1,  # is not known: rates are steps a second
        "world_size": 1,
        "accelerator": "cpu" if rank.device is None else "cuda",
        "steps": {"measured": len(rank.lengths)},
        "overall_images_per_second": 1 / seconds if seconds else None,
        "step_seconds": {name: float(values.mean()) / 1e6 for name, values in rank.phases.items()} | {"total": seconds},
        "trace_evidence": trace_evidence({"traceEvents": list(_events(rank))}) if rank.marked else None,
    }
    found = diagnose(Record(summary, {})) if rank.marked and seconds else []
    return Record(summary | {"findings": [one.as_dict() for one in found if one.cause != "nothing"]}, {})


def places(rank: RankTrace) -> dict[str, tuple[float, float]]:
    """By cause the longest piece of its evidence: when it begins and ends, in microseconds from the first event."""
    at = rank.columns
    found = {
        "synchronisation": Cover(np.column_stack([at.start[rank.waits], at.end[rank.waits]]).ravel()),
        "launch_bound": rank.idle.get("launch", NOTHING),
        "loader": rank.data,
    }
    return {cause: span for cause, cover in found.items() if (span := cover.longest) is not None}


def _events(rank: RankTrace) -> Iterator[Event]:
    """The events of the first steps as they are in the file."""
    at, (_, starts, ends) = rank.columns, rank.windows
    inside = np.flatnonzero((at.start >= starts[0]) & (at.kind != MEMORY))
    if len(inside) > MOST:
        last = np.partition(at.start[inside], MOST)[MOST]
        inside = inside[at.end[inside] <= max(float(ends[0]), float(ends[ends <= last].max(initial=0.0)))]
    for process in {at.tracks[track][0] for track in np.unique(at.track[at.kind == LOADER])}:
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": at.processes.get(process)}}
    names = at.names.texts
    for place in inside.tolist():
        kind, (process, thread) = int(at.kind[place]), at.tracks[at.track[place]]
        args: dict[str, Any] = {}
        if kind in _LINKED:
            number = int(at.call[place])
            args = {"correlation": None if number == NONE else number, "device": int(at.device[place])}
            args["bytes"] = int(at.size[place])
        yield {
            "ph": "X",
            "cat": _CATEGORY[kind],
            "name": names[at.name[place]],
            "pid": process,
            "tid": thread,
            "ts": float(at.start[place]),
            "dur": float(at.length[place]),
            "args": args,
        }
