"""What follows from the figures of ``suite=workers``. Imports no torch."""

from collections.abc import Mapping
from typing import Any

from strobe.bench.harness.results import by_round, reaches
from strobe.present.format import estimate, figure

AIMS = {"torch": 2.7, "spdl": 1.5}  # times as many images/s as the published pipelines, with as many workers
Cell = Mapping[str, Any]  # of results.json


def conclusions(record: Mapping[str, Any], stages: Mapping[str, str], columns: Mapping[str, str]) -> list[str]:
    """For each stage the best of ours against the others with as many workers, and where throughput peaks.

    What was not measured is told last.
    """
    told: list[str] = []
    for stage, title in stages.items():
        cells = [cell for cell in record["cells"] if cell["table"] == stage]
        measured = [cell for cell in cells if cell["visits"]]
        if measured:
            told += _of_stage(title, measured, columns)
    failed: dict[str, list[str]] = {}
    for cell in record["cells"]:
        if cell["status"] == "failed":
            failed.setdefault(cell["error"], []).append(cell["column"])
    return told + [f"Not measured, {', '.join(dict.fromkeys(names))}: {error}" for error, names in failed.items()]


def _of_stage(title: str, cells: list[Cell], columns: Mapping[str, str]) -> list[str]:
    ours = [cell for cell in cells if _is_ours(cell, columns)]
    told = []
    if ours:
        best = max(ours, key=_rate)
        told.append(f"{title}: the best of ours, {_beside(best, cells, columns)}.")
        in_full = [cell for cell in ours if IN_FULL in cell["column"]]
        if in_full and best not in in_full:
            told.append(f"{title}, photos decoded in full: {_beside(max(in_full, key=_rate), cells, columns)}.")
    peaks = []
    for name in dict.fromkeys(cell["column"] for cell in cells):
        peak = max((cell for cell in cells if cell["column"] == name), key=_rate)
        peaks.append(f"{name} {figure(_rate(peak))} with {_workers(peak)}")
    if len({cell["at"] for cell in cells}) > 1:
        told.append(f"{title}: throughput peaks at, in images/s, {'; '.join(peaks)}.")
    return told


OTHERS = ("torch", "spdl", "torch_tuned", "spdl_batches")
IN_FULL = "dct_scaling=false"  # in the name of ours that decodes photos at their full size


def _beside(ours: Cell, cells: list[Cell], columns: Mapping[str, str]) -> str:
    """What it delivers, against the others with as many workers."""
    beside = {cell["column"]: cell for cell in cells if cell["at"] == ours["at"]}
    against = [_against(ours, beside[columns[name]], AIMS.get(name)) for name in OTHERS if columns[name] in beside]
    others = ", ".join(filter(None, against))
    words = f"{ours['column']} with {_workers(ours)}, delivers {estimate(ours['images_per_second'])} images/s"
    return f"{words}{': ' if others else ''}{others}"


def _is_ours(cell: Cell, columns: Mapping[str, str]) -> bool:
    """One that decodes: the pack does not."""
    return cell["column"].startswith(columns["strobe"]) and "packed" not in cell["column"]


def _against(best: Cell, other: Cell, aim: float | None) -> str:
    found = by_round(best, other)
    if found is None or found["median"] is None:
        return ""
    aimed = "" if aim is None else f" (aim {aim:g}: {reaches(found, aim)})"
    return f"{estimate(found)} times {other['column']}{aimed}"


def _rate(cell: Cell) -> float:
    return float(cell["images_per_second"]["median"])


def _workers(cell: Cell) -> str:
    return f"{cell['at']:g} worker{'s'[: cell['at'] != 1]}"
