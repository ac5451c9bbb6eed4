"""Visits to cells, each in a fresh process."""

import contextlib
from pathlib import Path

from strobe.app.build import PRELOAD
from strobe.bench.harness.declare import Cell, Visit
from strobe.bench.harness.visit import LOG, Report, attend
from strobe.process.fork import Failure, in_fresh_process


def visit_cell(cell: Cell, visit: Visit, *, turn: float, timeout: float) -> Report | Failure:
    """Measure a cell in a process of its own, and leave no process behind, also not on Ctrl-C."""
    visit.folder.mkdir(parents=True, exist_ok=True)
    try:
        outcome = in_fresh_process(attend, cell, visit, turn, timeout=timeout, preload=[PRELOAD])
    finally:
        _tidy(visit.folder)
    if isinstance(outcome, Failure):
        return outcome
    assert isinstance(outcome, Report)
    return outcome


def _tidy(folder: Path) -> None:
    """Remove what is empty of what a visit has left."""
    log = folder / LOG
    if log.is_file() and not log.stat().st_size:
        log.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
