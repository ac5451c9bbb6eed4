"""Entries of the ledger of the ground-truth grid."""

from typing import Any

from strobe.validation.ledger import Entry


def entry(cause: str | None, found: str | None, *, measured: float | None = None, **more: Any) -> Entry:
    """As a run of a cell leaves it, with a prediction of 2.00 (1.80 to 2.20) where there is something to fix."""
    fix = found not in (None, "nothing")
    given: dict[str, Any] = {
        "cell": "slow",
        "half": "developed",
        "strength": "strong",
        "size": "small",
        "overrides": ["a=1"] if fix else [],
        "predicted": {"median": 2.0, "low": 1.8, "high": 2.2} if fix else None,
        "lost": None,
        "quantile": None,
        "failure": None,
        "host": "here",
        "machine": "a processor, 2 cores",
        "commit": "abc",
        "seconds": 1.0,
    }
    return Entry(cause=cause, found=found, measured=measured, **given | more)
