"""The operators whose time changed most between two runs, from their profiles' tables."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from strobe.errors import DataError
from strobe.records.run import Record, load_record
from strobe.records.tables import DEVICE_TABLE, HOST_TABLE, operators_of, steps_of

MOST = 15


def changed_operators(before: Path, after: Path) -> dict[str, Any] | None:
    """The largest changes of operators' own time, in microseconds an image.

    A table sums up the recorded steps of rank 0; divided by these steps and a rank's images in each, it can be compared
    between batch sizes. Times are the GPU's if both runs used one, and else the host's: between a GPU and a CPU that is
    time to submit work on one side, and time to do it on the other. An operator that a run did not call took 0.

    Returns:
        ``rows``, the greatest change first, each with ``name``, ``before_us``, ``after_us`` and ``change_us``, and
        ``device``, ``cpu`` or ``gpu``; None where a run has no tables, or does not tell of how many steps they are.
    """
    for table, device in ((DEVICE_TABLE, "gpu"), (HOST_TABLE, "cpu")):
        was, became = _own_times(before, table), _own_times(after, table)
        if was is not None and became is not None:
            rows: list[dict[str, Any]] = []
            for name in was.keys() | became.keys():
                once, now = was.get(name, 0.0), became.get(name, 0.0)
                rows.append({"name": name, "before_us": once, "after_us": now, "change_us": now - once})
            rows.sort(key=lambda row: (-abs(row["change_us"]), row["name"]))
            return {"rows": rows[:MOST], "device": device}
    return None


def operators_between(comparison: dict[str, Any]) -> tuple[str, str, Path, Path] | None:
    """Two cells whose speeds certainly differ, with a completed run of each: baseline or slowest, and best."""
    measured = [cell for cell in comparison["cells"] if cell["images_per_second"]]
    if len(measured) < 2:
        return None
    best = next(cell for cell in measured if cell["best"])
    before = next((cell for cell in measured if cell["verdict"] == "baseline"), measured[-1])
    before = measured[-1] if before is best else before
    if before["fastest"] is not False or best["verdict"] == "no difference":
        return None
    folders = []
    for cell in (before, best):
        runs = [Path(run["directory"]) for run in cell["runs"] if run["status"] == "completed"]
        folders.append(next((run for run in runs if (run / "tables").is_dir()), runs[0]))
    return before["name"], best["name"], folders[0], folders[1]


def _own_times(run: Path, table: str) -> dict[str, float] | None:
    """Microseconds an image that each operator took without those it calls."""
    operators = operators_of(run, most=None, tables=[table])
    images = operators and operators.steps and _images_per_step(run)
    if not operators or not operators.steps or not images:
        return None
    times: dict[str, float] = defaultdict(float)  # an operator may have several rows
    for row in operators.rows:
        times[row.name] += 1e6 * row.own / (operators.steps * images)
    return times


def _images_per_step(run: Path) -> float | None:
    """The images of one rank in a profiled step."""
    try:
        record = load_record(run)
    except DataError:
        record = Record({})
    steps = steps_of(run)
    images = steps.get("images")[(steps.get("profiled") != 0) & (steps.get("images") != 0)]
    if len(images):
        return float(images.mean()) / (record.count("world_size") or 1)
    return record.number("batch_size")
