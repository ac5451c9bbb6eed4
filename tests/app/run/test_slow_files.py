"""The files that made batches late are found again, from the steps alone."""

import csv
import time
from pathlib import Path
from typing import Any

import pytest

from strobe.app.run.slow_files import slow_files
from support.ceilings_parts import composed, order


def write_steps(folder: Path, waits: list[float], batches: int) -> None:
    with (folder / "steps.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "epoch", "data_wait"])
        writer.writerows([number, number // batches, wait] for number, wait in enumerate(waits))


@pytest.mark.parametrize("slow", [0.6, 0.0])
def test_a_file_that_makes_its_batches_late_is_named(sample_root: Path, tmp_path: Path, slow: float) -> None:
    """In two epochs its batch is the late one; where reading it again is no slower, the storage was."""
    with composed(sample_root) as (_, data, _):
        chosen, path = 17, data.found["train"].path(17)
        batches, epochs = len(order(data)), data.batches("train", 4, shuffle=True).batch_sampler
        waits = []
        for epoch in range(2):
            epochs.sampler.set_epoch(epoch)
            waits += [5.0 if chosen in batch else 0.001 for batch in epochs]
        write_steps(tmp_path, waits, batches)
        read = data.loader.read

        def reading(asked: str, source: Any) -> Any:
            time.sleep(slow if asked == path else 0)
            return read(asked, source)

        data.loader.read = reading
        found = slow_files(data, {"batches_per_epoch": batches}, tmp_path, shuffle=True, seconds=5)
    assert [file["path"] for file in found["slow"]] == ([path] if slow else [])
    assert all(file["seconds"] > found["usual_seconds"] for file in found["slow"])
    assert found["read"] > 4
    assert found["usual_bytes"] > 0
