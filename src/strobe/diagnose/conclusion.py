"""What follows from a run's record, added to it."""

from pathlib import Path
from typing import Any

from strobe.diagnose.rank import diagnose, verdict
from strobe.diagnose.trace import read_evidence
from strobe.records.run import Record

CEILINGS = ("loader", "model", "transfer", "joint")


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
