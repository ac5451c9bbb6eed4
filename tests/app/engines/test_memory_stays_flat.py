"""However many batches are had, the memory for them stays what it was."""

import os
import resource
from pathlib import Path

import pytest

from strobe.app.engines.sampler import EndlessBatches, EpochSampler
from support.pipeline_parts import ENGINES, SIZE, dataset, loader

FORMS = {"memory": "array", "native": "tiles", "packed": "tiles"}
BATCHES = 1_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.mark.parametrize(
    ("by", "name", "workers"), [*((by, "torch", 0) for by in FORMS), *(("native", name, 2) for name in ENGINES)]
)
def test_a_thousand_batches(by: str, name: str, workers: int, tmp_path: Path) -> None:
    images = dataset(FORMS[by], by, tmp_path, scale="device", batched=True)
    endless = EndlessBatches(EpochSampler(SIZE, shuffle=True, seed=0), SIZE)
    batches = iter(loader(name, images, endless, workers))
    size = sum(next(batches)[0].nbytes for _ in range(300)) // 300
    memory, files = resident_bytes(), open_files()
    for _ in range(BATCHES):
        next(batches)
    assert resident_bytes() - memory < size * BATCHES // 4
    assert open_files() <= files + 20
    batches.close()
