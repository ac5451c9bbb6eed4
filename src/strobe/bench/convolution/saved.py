"""Profiles as files: what a cell's process saw, for the page."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from strobe.bench.convolution.call_tree import Call, Roots, own_seconds, without_builtins
from strobe.bench.convolution.event_profile import EventProfile, Row
from strobe.bench.convolution.sampling_profile import SamplingProfile
from strobe.bench.convolution.study import PARTS

FILE = "profile.json"


@dataclass(frozen=True)
class Saved:
    """A profile as it was read."""

    roots: Roots
    seconds: float  # that the work took meanwhile
    rows: tuple[Row, ...] = ()  # of events
    samples: int | None = None


def save_profile(folder: Path, profile: EventProfile | SamplingProfile) -> Path:
    """Write ``profile.json`` into a folder, and return its path."""
    path = folder / FILE
    path.write_text(json.dumps(asdict(profile)), encoding="utf-8")
    return path


def load_profile(folder: Path) -> Saved | None:
    """What ``save_profile`` wrote there; None where there is nothing, or nothing legible."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        rows = tuple(Row(**row) for row in found.get("rows", ()))
        return Saved(_roots(found["roots"]), found["seconds"], rows, found.get("samples"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _roots(calls: list[Mapping[str, Any]]) -> Roots:
    return tuple(Call(**{**call, "children": _roots(call["children"])}) for call in calls)


def own_of_parts(roots: Roots) -> dict[str, float]:
    """Own seconds of each of ``PARTS``; those of functions in C are their callers'."""
    found = dict.fromkeys(PARTS, 0.0)
    for name, seconds in own_seconds(without_builtins(roots)).items():
        function = name.rpartition("(")[2].rstrip(")")
        found[function if function in found else PARTS[-1]] += seconds
    return found
