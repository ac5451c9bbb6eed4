"""Cells of a comparison: runs of the same overrides, and what they measured together."""

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strobe.callbacks.columns import GAPS, PHASES
from strobe.compare.runs import Trained
from strobe.measure.statistics import FEWEST, interval
from strobe.records import environment_difference
from strobe.records.environment_difference import Origin
from strobe.report.wording import all_rates, share_of_ceiling

CEILINGS = ("storage", "loader", "model", "joint")
MEMORY = ("rss_peak_bytes", "device_peak_bytes")
ACCURACY = ("test/accuracy", "val/accuracy")
_CHOICES = ("loader", "engine", "data", "model", "profiler", "trainer")
BATCH, WORKERS = "data.batch_size", "engine.num_workers"
SETTINGS = {  # as a record calls them, with their keys
    **{"batch_size": BATCH, "num_workers": WORKERS, "threads": "threads"},
    **{name: f"trainer.{name}" for name in ("accelerator", "devices", "world_size", "precision")},
}
LEARNING_RATE = frozenset({"model.lr", "model.lr_scaling", "model.lr_batch_size"})  # follow the batch size
DEFAULTS = "defaults"  # a cell that gives none of the overrides in which others differ

Key = frozenset[tuple[str, str]]
CellRecord = dict[str, Any]


def grouped(runs: Sequence[Trained]) -> dict[Key, list[Trained]]:
    """Runs by cell, in the order in which they were found."""
    cells: dict[Key, list[Trained]] = {}
    for run in runs:
        cells.setdefault(frozenset(run.overrides.items()), []).append(run)
    return cells


def differing(cells: Sequence[Mapping[str, str]]) -> list[str]:
    """The override keys in which cells differ, in the order in which they were given; the longest list leads."""
    ordered = sorted(cells, key=len, reverse=True)
    keys = dict.fromkeys(key for overrides in ordered for key in overrides)
    return [key for key in keys if len({overrides.get(key) for overrides in cells}) > 1]


def name_of(overrides: Mapping[str, str], keys: Sequence[str]) -> str:
    """The overrides in which a cell differs from others, such as ``loader=native data.batch_size=32``."""
    named = {key: overrides[key] for key in keys if key in overrides}  # ``~key`` deletes one, and has no value
    return " ".join(f"{key}={value}" if value or key[0] != "~" else key for key, value in named.items()) or DEFAULTS


def describe(runs: Sequence[Trained], keys: Sequence[str], folder: Path) -> CellRecord:
    """A cell of ``comparison.json``, without what only a comparison with others tells; links start from ``folder``."""
    overrides = runs[0].overrides
    measured = [run for run in runs if run.rate is not None]
    phases = {name: _mean(_told(measured, "step_seconds", name)) for name in (*PHASES, "total")}
    on_gpu = [run for run in runs if run.record.text("accelerator") not in (None, "cpu")]
    statuses = {run.status for run in runs}
    errors = [run.error for run in runs if run.error]
    return {
        "name": name_of(overrides, keys),
        "overrides": {key: overrides.get(key, "") for key in keys},
        "values": max(map(_settings, runs), key=lambda values: sum(value is not None for value in values.values())),
        "status": statuses.pop() if len(statuses) == 1 else "mixed",
        "error": errors[0] if errors else None,
        "runs": [_run(run, folder) for run in runs],
        "unit": next(map(_counted, measured), None),
        "images_per_second": _rate(measured),
        "speedup": None,
        "speedup_level": None,
        "paired": None,
        "verdict": "not measured",
        "step_seconds": None if phases["total"] is None else phases,
        "images_per_step": _mean([_images_per_step(run) for run in measured]),
        "between_seconds": _mean([_between(run) for run in measured]),
        "ceilings": {name: _mean([all_rates(run.record).get(name) for run in measured]) for name in CEILINGS},
        "efficiency": _mean([share_of_ceiling(run.record) for run in measured]),
        "memory": {name: max(_told(runs, "memory", name), default=None) for name in MEMORY},
        "gpu": next((gpu for run in on_gpu if (gpu := run.record.text("environment", "gpu"))), None),
        "accuracy": {name: _mean(told) for name in ACCURACY if (told := _told(measured, "metrics", name))} or None,
        "best": False,
        "fastest": None,
    }


def rates_of(runs: Sequence[Trained]) -> list[float]:
    """Images/s of the runs that measured any."""
    return [rate for run in runs if (rate := run.rate) is not None]


def environment_differences(runs: Sequence[Trained], keys: Sequence[str]) -> list[str]:
    """Sentences on what was not the same in runs that left a record; ``keys``, the overrides that differ, are meant."""
    meant = any(key == "data" or (key.startswith("data.") and key != BATCH) for key in keys)
    known = [run for run in runs if run.record.mapping("environment")]
    sentences = environment_difference.environment_differences(
        [
            Origin(
                str(run.folder),
                run.record.mapping("environment"),
                {"commit of Strobe": _commit(run)}
                | ({} if meant else {"training images": run.record.count("train_images")}),
                whole=run.status == "completed",
            )
            for run in known
        ],
        "runs",
    )
    if len(units := {_counted(run) for run in runs if run.rate is not None}) > 1:
        sentences.append(f"Rates count {' in some runs, '.join(sorted(units))} in others, and cannot be compared")
    commits = {_commit(run) for run in known}
    if len(commits) == 1 and len({run.origin for run in known}) > 1 and (commits.pop() or "").endswith("+"):
        # Those of one sweep are taken to be the same in all its runs.
        sentences.append("The runs had uncommitted changes, which may not have been the same")
    return sentences


def _counted(run: Trained) -> str:
    """What its rate counts: images, samples, or steps of unknown size."""
    return run.record.text("unit") or "images"


def _commit(run: Trained) -> str | None:
    """Short, with ``+`` for uncommitted changes."""
    commit = run.record.text("environment", "git_commit")
    return commit and commit[:12].removesuffix("+") + ("+" if commit.endswith("+") else "")


def _rate(measured: Sequence[Trained]) -> dict[str, Any] | None:
    """Images/s with its interval: over runs, or within the only one, over its steps."""
    if not measured:
        return None
    if len(measured) >= FEWEST:
        return {**interval(rates_of(measured)).as_record(), "of": "runs"}
    rate, record = measured[0].rate, measured[0].record
    middle, low, high = (record.number("images_per_second", name) for name in ("median", "low", "high"))
    if rate is None or not middle or low is None or high is None:
        return {"median": rate, "low": None, "high": None, "of": "steps"}
    # Steps' rates leave out what lies between steps: as a share of their median, their interval is that of both.
    return {"median": rate, "low": rate * low / middle, "high": rate * high / middle, "of": "steps"}


def _run(run: Trained, folder: Path) -> dict[str, Any]:
    report = run.folder / "report.html"
    return {
        "directory": str(run.folder),
        "report": os.path.relpath(report.absolute(), folder.absolute()) if report.is_file() else None,
        "status": run.status,
        "images_per_second": run.rate,
        "error": run.error,
        "tensorboard": any((run.folder / "tensorboard").rglob("events.out.tfevents*")),
        "seconds": run.seconds,
    }


def _settings(run: Trained) -> dict[str, Any]:
    """The settings as the run's record tells them; of one that failed early, what its overrides say."""
    record, values = run.record, dict[str, Any]()
    for name, key in SETTINGS.items():
        value = record.summary.get(name)
        if not isinstance(value, (int, str)):
            value = run.overrides.get(key)
            value = int(value) if value and value.isdecimal() else value
        values[name] = value
    for name in _CHOICES:
        values[name] = record.text("choices", name) or run.overrides.get(name)
    value = record.setting("model.channels_last")
    return values | {"channels_last": value if isinstance(value, bool) else None}


def _between(run: Trained) -> float | None:
    """Seconds a step of what lies between steps."""
    parts = [run.record.number("between_seconds", name) for name in GAPS]
    return None if all(part is None for part in parts) else sum(part or 0.0 for part in parts)


def _images_per_step(run: Trained) -> float | None:
    """By the definition of the overall rate; of all ranks."""
    rate, total = run.record.number("overall_images_per_second"), run.record.number("step_seconds", "total")
    return None if rate is None or total is None else rate * (total + (_between(run) or 0.0))


def _told(runs: Sequence[Trained], *path: str) -> list[float]:
    """A number of the runs' records, of those that tell it."""
    return [value for run in runs if (value := run.record.number(*path)) is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
