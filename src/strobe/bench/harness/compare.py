"""A suite's figures as ``torch.utils.benchmark`` has them, to be printed, unpickled and merged."""

import pickle
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.benchmark import Compare, Measurement
from torch.utils.benchmark.utils.common import TaskSpec

from strobe.records.files import whole

NAME = "measurements.pkl"


def measurements(record: Mapping[str, Any]) -> list[Measurement]:
    """One for each cell that was measured, with the seconds of a repetition in each trial."""
    return [_measurement(record, cell) for cell in record["cells"] if cell["visits"]]


def _measurement(record: Mapping[str, Any], cell: Mapping[str, Any]) -> Measurement:
    spec = TaskSpec(
        stmt=cell["name"],
        setup="",
        label=f"{record['suite']}: {cell['table']}",
        sub_label=" ".join(part for part in (cell["row"], cell["cache"] if cell["cache"] == "cold" else "") if part),
        description=cell["column"],
        num_threads=cell["threads"],
    )
    times = [statistics.median(trial["seconds"]) for trial in cell["visits"]]
    return Measurement(number_per_run=1, raw_times=times, task_spec=spec)


def compared(found: list[Measurement]) -> str:
    """torch's own table."""
    return str(Compare(found)).rstrip()


def save(folder: Path, found: list[Measurement]) -> Path:
    """Write them whole or not at all; ``pickle.load`` gives the list, ``Measurement.merge`` joins several."""
    path = folder / NAME
    with whole(path) as partial:
        partial.write_bytes(pickle.dumps(found))
    return path
