"""Directories of runs and sweeps, as training leaves them, for the tests of comparisons."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strobe.records.sweep import Run, Sweep, SweepCell

PHASES = {"data_wait": 25, "transfer": 1, "forward": 5, "backward": 6, "optimizer": 2, "callbacks": 1, "other": 1}  # ms
ENVIRONMENT = {
    "host": "box",
    "cpu": "AMD EPYC",
    "usable_cores": 2,
    "gpu": None,
    "versions": {"python": "3.11.7", "torch": "2.15.0"},
    "git_commit": "0123456789abcdef0123456789abcdef01234567",
    "page_cache": 1.0,
}


def summary_of(overrides: Sequence[str], rate: float, **changes: Any) -> dict[str, Any]:
    """A completed run's record; ``changes`` of its environment, or of what it says at the top."""
    given = dict(text.split("=", 1) for text in overrides)
    batch, loader = int(given.get("data.batch_size", 32)), given.get("loader", "skimage")
    seconds = {name: milliseconds / 1e3 for name, milliseconds in PHASES.items()}
    summary: dict[str, Any] = {
        "schema": 1,
        "status": "completed",
        "error": None,
        "overrides": list(overrides),
        "choices": {"data": "eurosat", "loader": loader, "engine": "torch", "model": "resnet18", "trainer": "default"},
        "batch_size": batch,
        "num_workers": int(given.get("engine.num_workers", 0)),
        "accelerator": "cpu",
        "world_size": 1,
        "train_images": 80,
        "environment": copy.deepcopy(ENVIRONMENT),
        "overall_images_per_second": rate,
        "images_per_second": {"median": 1.25 * rate, "low": 1.2 * rate, "high": 1.3 * rate},
        "step_seconds": {"total": sum(seconds.values()), **seconds},
        "between_seconds": {"validation": 0.01, "checkpoints": 0.0, "between": 0.002},
        "ceilings": {"loader": 3230.0, "model": 8120.0, "joint": None},
        "efficiency": 0.9,
        "memory": {"rss_peak_bytes": 4_100_000_000, "device_peak_bytes": None},
        "metrics": {"train/loss": 1.5, "val/accuracy": 0.25, "test/accuracy": 0.5},
    }
    for name, value in changes.items():
        (summary["environment"] if name in summary["environment"] else summary)[name] = value
    return summary


def write_run(folder: Path, overrides: Sequence[str] = (), rate: float = 100.0, **changes: Any) -> Path:
    """A run's directory."""
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary_of(overrides, rate, **changes)))
    (folder / "report.html").write_text("a report")
    return folder


def write_sweep(folder: Path, cells: Sequence[tuple[str, Sequence[Any]]], **changes: Any) -> Path:
    """A sweep's directory; each cell by its overrides and what its runs came to.

    That is a rate, or why one failed at once, or the arguments of ``write_run``.
    """
    sweep = Sweep("python train.py -m", [], max(len(runs) for _, runs in cells), 0, "2026-01-01", "completed", 9.0)
    for number, (overrides, runs) in enumerate(cells):
        cell = SweepCell(number, overrides.split())
        for repeat, outcome in enumerate(runs, 1):
            name = f"{number}-cell" + (f".{repeat}" if repeat > 1 else "")
            if isinstance(outcome, str):
                cell.runs.append(Run(repeat, name, "failed", outcome, 1.0))
            else:
                told = outcome if isinstance(outcome, dict) else {"rate": outcome}
                write_run(folder / name, [*cell.overrides, f"seed={repeat}"], **told, **changes)
                cell.runs.append(Run(repeat, name, "completed", None, 2.5))
        sweep.cells.append(cell)
    sweep.save(folder)
    return folder
