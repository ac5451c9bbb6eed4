"""The ceiling of copies from host to GPU."""

import torch

from strobe.app.loaders.base import Batch
from strobe.measure.timing import Meter, Rate, clock

WARMUP = 3  # copies


def measure_transfer(batch: Batch, device: torch.device, *, pinned: bool, seconds: float) -> Rate:
    """Copy a batch to the device, again and again, from pinned or pageable memory, as Lightning does."""
    host = [tensor.pin_memory() if pinned else tensor for tensor in batch]
    meter = Meter(seconds, warmup=WARMUP, clock=clock(device))
    images = len(batch[1])
    while True:
        copies = [tensor.to(device, non_blocking=True) for tensor in host]
        if meter.add(images):
            break
        del copies
    return meter.rate()
