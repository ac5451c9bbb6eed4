"""What a run's rules say of a trace alone, and where in it the evidence lies."""

from typing import Any

import numpy as np

from strobe.diagnose.rank import diagnose
from strobe.records.run import Record
from strobe.traces.cover import NOTHING, Cover
from strobe.traces.evidence import trace_evidence
from strobe.traces.rank import RankTrace


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
        "accelerator": "cpu" if rank.device is None else "gpu",
        "environment": {"gpu_capability": _capability(rank)},
        "steps": {"measured": len(rank.lengths)},
        "overall_images_per_second": 1 / seconds if seconds else None,
        "step_seconds": {name: float(values.mean()) / 1e6 for name, values in rank.phases.items()} | {"total": seconds},
        "trace_evidence": trace_evidence(rank),
    }
    findings = diagnose(Record(summary, {})) if rank.marked and seconds else []
    return Record(summary | {"findings": [one.as_dict() for one in findings if one.cause != "nothing"]}, {})


def _capability(rank: RankTrace) -> list[Any] | None:
    """The compute capability of the device that the trace shows at work, as the file tells it."""
    devices = rank.columns.said.get("deviceProperties")
    known = (one for one in devices if isinstance(one, dict)) if isinstance(devices, list) else ()
    return next(
        ([one.get("computeMajor"), one.get("computeMinor")] for one in known if one.get("id") == rank.device), None
    )


def places(rank: RankTrace) -> dict[str, tuple[float, float]]:
    """By cause the longest piece of its evidence: when it begins and ends, in microseconds from the first event."""
    at = rank.columns
    covers = {
        "synchronisation": Cover(np.column_stack([at.start[rank.waits], at.end[rank.waits]]).ravel()),
        "launch_bound": rank.idle.get("launch", NOTHING),
        "loader": rank.data,
    }
    return {cause: span for cause, cover in covers.items() if (span := cover.longest) is not None}
