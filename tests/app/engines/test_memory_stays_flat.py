"""However many batches are had, the memory for them stays what it was."""

import os
import resource
from pathlib import Path

import pytest

from strobe.app.engines.sampler import EndlessBatches, EpochOrder
from support.pipeline_parts import ENGINES, SIZE, dataset, loader

FORMS = [("array", "memory"), ("tiles", "native"), ("tiles", "packed")]
BATCHES = 2_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("form", "by"), FORMS, ids=["memory", "native", "packed"])
def test_two_thousand_batches(form: str, by: str, name: str, workers: int, tmp_path: Path) -> None:
    images = dataset(form, by, tmp_path, scale="device", batched=True)
    endless = EndlessBatches(EpochOrder(SIZE, shuffle=True, seed=0), SIZE)
    batches = iter(loader(name, images, endless, workers))
    size = sum(next(batches)[0].nbytes for _ in range(300)) // 300
    memory, files = resident_bytes(), open_files()
    for _ in range(BATCHES):
        next(batches)
    assert resident_bytes() - memory < size * BATCHES // 4
    assert open_files() <= files + 20
    batches.close()
