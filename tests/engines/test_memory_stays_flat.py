"""However many batches are had, the memory for them stays what it was."""

import os
import resource
from pathlib import Path

import pytest
import torch
from pipeline_parts import ENGINES, loader

from strobe.engines.order import EndlessBatches, EpochOrder
from strobe.loaders.memory import MemoryLoader
from strobe.loaders.sources import ArraySource

IMAGES, BATCH, BATCHES = 64, 16, 2_000
ALLOWED = 24_000_000  # bytes; each batch has 49 kB, all of them together 98 MB


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ENGINES)
def test_two_thousand_batches(name: str, workers: int) -> None:
    everything = torch.arange(IMAGES)
    images = torch.zeros(IMAGES, 3, 32, 32, dtype=torch.uint8)
    dataset = MemoryLoader(scale="device", batched=True).dataset(ArraySource(images, everything, everything))
    endless = EndlessBatches(EpochOrder(IMAGES, shuffle=True, seed=0), BATCH)
    batches = iter(loader(name, dataset, endless, workers))
    for _ in range(200):
        next(batches)
    memory, files = resident_bytes(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(BATCHES):
        next(batches)
    assert resident_bytes() - memory < ALLOWED
    assert len(os.listdir("/proc/self/fd")) <= files + 20  # noqa: PTH208
    batches.close()
