"""From all rules to what a person reads: ranked findings, the verdict, and the command to copy."""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from strobe.diagnose import rules
from strobe.diagnose.predict import NOTABLE, WORTH, Step, step_of
from strobe.diagnose.rules import Finding
from strobe.diagnose.symptoms import start_share
from strobe.diagnose.trace import read_evidence
from strobe.overrides import applied, command_of, key_of
from strobe.present.format import duration, percent
from strobe.present.format import rate as figure
from strobe.records.run import Record

Rule = Callable[[Record, Step], Finding | list[Finding] | None]
CEILINGS = ("loader", "model", "transfer", "joint")

# A symptom, the cause that explains it if that gains more, and why.
EXPLAINED = (
    ("small_batch", "loader", "larger batches do not load faster"),
    ("launch_bound", "loader", "the device idles because it waits for data"),
    ("loader", "workers_hurt", "workers without a core load slowly"),
    ("threads", "workers_hurt", "the threads are too many because the workers take their cores"),
    ("workers_restart", "workers_hurt", "with none, or fewer, there is less to start anew"),
    ("small_batch", "threads", "threads without a core slow each kernel, most of all short ones"),
    ("memory_layout", "threads", "the layouts were compared on threads without a core"),
    ("optimizer", "threads", "an update is many short kernels, which threads without a core slow most"),
    ("workers_hurt", "threads", "the workers find no cores because the threads take them"),
    ("launch_bound", "small_batch", "larger batches launch fewer kernels per image"),
    ("optimizer", "small_batch", "larger batches update less often per image"),
    ("launch_bound", "synchronisation", "the device idles because the host waits for it"),
    ("small_batch", "synchronisation", "the device idles because the host waits for it"),
    ("synchronisation", "callback", "the callback is what waits for the device"),
    ("synchronisation", "logging", "the logger is what waits for the device"),
)

WHERE = ("hydra.run.", "hydra.sweep.")  # what only moves a run's files
LOST = ("callback", "logging", "checkpoint", "epoch_checkpoint", "validation", "workers_restart")


def conclude(summary: dict[str, Any], config: dict[str, Any], run_dir: Path) -> None:
    """Renew ``efficiency``, ``trace_evidence``, ``findings`` and ``verdict`` from the rest and the run's traces."""
    summary["efficiency"] = efficiency(summary)
    record = Record(summary, config)
    paths = [run_dir / trace for trace in record.items("traces") if isinstance(trace, str)]
    if evidence := read_evidence([path for path in paths if path.is_file()]):
        summary["trace_evidence"] = evidence
    findings = diagnose(record)
    summary["findings"] = [finding.as_dict() for finding in findings]
    summary["verdict"] = verdict(record, findings)


def efficiency(summary: dict[str, Any]) -> float | None:
    """The measured rate as a share of the smallest ceiling; None when either is unknown."""
    record = Record(summary)
    known = [rate for name in CEILINGS if (rate := record.number("ceilings", name))]
    measured = record.number("images_per_second", "median")
    return measured / min(known) if measured is not None and known else None


def diagnose(record: Record) -> list[Finding]:
    """What to change, the greatest predicted gain first; ``nothing`` alone if nothing would help.

    A finding is left out if less than 3% is predicted, if it may lose as much as it is likely to gain (``low * median
    <= 1``, unless the run itself lost the time, ``LOST``), or if a stronger one explains it (``EXPLAINED``) or changes
    some of the same. A run without a measured step has no findings.
    """
    if (step := step_of(record)) is None:
        return []
    found = [finding for rule in all_rules() for finding in as_list(rule(record, step))]
    listed: list[Finding] = []
    for finding in sorted(found, key=lambda finding: (-finding.predicted_speedup.median, finding.cause)):
        # What is itself explained explains nothing.
        if _helps(finding) and not any(_covers(stronger, finding) for stronger in listed):
            listed.append(finding)
    return listed or [finding for finding in found if finding.cause == "nothing"][:1]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every public function that is defined in a module of ``strobe.diagnose.rules``."""
    names = [module.name for module in pkgutil.iter_modules(rules.__path__, f"{rules.__name__}.")]
    functions = [(name, found) for name in names for _, found in inspect.getmembers(importlib.import_module(name))]
    return tuple(
        found
        for name, found in functions
        if inspect.isfunction(found) and found.__module__ == name and not found.__name__.startswith("_")
    )


def verdict(record: Record, findings: Sequence[Finding]) -> str:
    """One or two sentences for the terminal, the report and TensorBoard."""
    status = record.text("status")
    if not record.number("step_seconds", "total"):
        ended = {"failed": "The run failed", "interrupted": "The run was interrupted"}.get(status or "")
        return f"{ended} before a step was measured." if ended else "No step was measured."
    before = f"The run {'was interrupted' if status == 'interrupted' else 'failed'}; until then: "
    begin = before if status in ("failed", "interrupted") else ""
    if not findings:
        return f"{begin}No finding."
    first = findings[0]
    end = _first_step(record, findings)
    if first.cause == "nothing":
        return f"{begin}{first.title}: {first.evidence[:1].lower()}{first.evidence[1:]}{end}"
    predicted, high = first.predicted_speedup, first.predicted_speedup.high
    digits = 1 if predicted.median >= 1.5 else 2
    middle, *ends = (f"{value:.{digits}f}" for value in (predicted.median, predicted.low, high))
    told = f"Predicted: {' '.join(first.overrides)} -> {middle}x ({' to '.join(ends)})."
    if not first.overrides:  # nothing to run: the most that a change can give
        told = f"Without it training would be up to {high:.{1 if high >= 1.5 else 2}f}x as fast."
    return f"{begin}{first.title}{_ceilings(record)}. {told}{end}"


def command(record: Record, overrides: Sequence[str]) -> str:
    """The line that trains as this run did, with these overrides in place of its own for the same keys."""
    own = [text for text in record.items("overrides") if isinstance(text, str)]
    return command_of(applied([text for text in own if not key_of(text).startswith(WHERE)], overrides))


def _helps(finding: Finding) -> bool:
    predicted = finding.predicted_speedup
    sure = finding.cause in LOST or predicted.low * predicted.median > 1
    return finding.cause != "nothing" and predicted.median >= WORTH and sure


def _covers(stronger: Finding, finding: Finding) -> bool:
    explained = any((finding.cause, stronger.cause) == (symptom, cause) for symptom, cause, _ in EXPLAINED)
    return explained or not set(stronger.overrides).isdisjoint(finding.overrides)


def as_list(found: Finding | list[Finding] | None) -> list[Finding]:
    """What a rule has found, as a list."""
    return [found] if isinstance(found, Finding) else found or []


def _ceilings(record: Record) -> str:
    """The measured rate beside the ceilings; empty where these are unknown."""
    rates = {name: rate for name in ("loader", "model") if (rate := record.number("ceilings", name))}
    measured, joint = record.number("images_per_second", "median") or 0.0, record.number("ceilings", "joint") or 0.0
    known = [f"{name} ceiling {figure(rate)}" for name, rate in rates.items()]
    if measured < joint < min(rates.values(), default=math.inf):  # else it is no limit, or was measured too low
        known.append(f"together at most {figure(joint)}")
    given = [f"measured {figure(measured)}", *known] if measured else known
    return f" ({', '.join(given)} images/s)" if known else ""


def _first_step(record: Record, findings: Sequence[Finding]) -> str:
    """A sentence about a first step that took a notable share of the run, which no rate shows."""
    share, first = start_share(record), record.number("first_step_seconds")
    if share is None or first is None or share < NOTABLE or any(item.cause == "first_step" for item in findings):
        return ""
    return f" The first step took {duration(first)}, {percent(share)} of all steps' time, and counts in no rate."
