"""The profilers' cells of suite ``convolution``, visited in this process."""

from pathlib import Path

from strobe.bench.harness.declare import Input, Trial
from strobe.bench.harness.schedule import slug
from strobe.bench.harness.trial import Report, measure
from strobe.bench.suites.convolution import QUICK_REPETITIONS, _profiled


def visited_profilers(folder: Path) -> dict[str, Report]:
    """Let each measure once, and leave its profile in a result's folder; what each found, by the profiler's name."""
    found = {}
    for cell in _profiled(QUICK_REPETITIONS):
        place = folder / "cells" / slug(cell.name)
        place.mkdir(parents=True)
        with cell.make(Trial(place, 0, (), Input("noise", generated=True))) as work:
            found[cell.column] = measure(cell, work, 0.0)
    return found
