"""A rate from blocks of batches, until it is known well enough or the time is up."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from strobe.measure.statistics import series

BLOCK = 0.1  # seconds that a block should last, so that neither the clock nor a synchronisation weighs
BLOCKS = 8  # at least, before a rate can be well known
WELL_KNOWN = 0.02  # a 95% interval within this share of the median on both sides
SOON = 1.0  # seconds after which a well-known rate is believed


@dataclass(frozen=True)
class Rate:
    """Images/s with a 95% interval, and core-seconds per image; the latter None where they cannot be read."""

    median: float
    low: float
    high: float
    cpu_seconds: float | None


class Meter:
    """Counts batches as they come and times them in blocks; the first ones are a warm-up and not timed.

    Args:
        seconds: from the first batch on, after which counting ends; two blocks are timed in any case.
        multiple: a block has a multiple of so many batches, such as the workers that deliver them in turn.
        warmup: batches before the timed ones, at least ``multiple``; a quarter of the time at most.
        clock: seconds, with all work done that was given to a device.
        cpu: core-seconds used so far.
    """

    def __init__(
        self,
        seconds: float,
        *,
        multiple: int = 1,
        warmup: int,
        clock: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float | None] = time.process_time,
    ) -> None:
        self._seconds = seconds
        self._least = min(BLOCK, seconds / 20)
        self._multiple = self._size = max(1, multiple)
        self._warmup = max(warmup, self._multiple)
        self._clock = clock
        self._cpu = cpu
        self._began: float | None = None
        self._warm = False
        self._batches = self._images = self._total = 0
        self._excluded = 0.0
        self._rates: list[float] = []

    def exclude(self, seconds: float) -> None:
        """Take time that passed since the last batch out of the measurement."""
        self._excluded += seconds

    def add(self, images: int) -> bool:
        """Count one batch; whether that was the last one needed."""
        self._batches += 1
        self._images += images
        if self._began is None:
            self._began = self._clock()
        if not self._warm:
            late = self._batches >= self._multiple and self._clock() - self._began > self._seconds / 4
            self._warm = late or self._batches >= self._warmup
            if self._warm:
                self._restart()
            return False
        if self._batches < self._size:
            return False
        now = self._clock()
        took = max(now - self._opened - self._excluded, 1e-9)
        if took < self._least / 2:  # blocks are too short: begin again with longer ones
            growth = min(self._least / took, 10.0)
            self._size = math.ceil(self._size * growth / self._multiple) * self._multiple
            self._restart()
            return False
        self._rates.append(self._images / took)
        self._total += self._images
        self._open()
        return self._is_enough(now - self._began)

    def rate(self) -> Rate:
        """What was counted; call it when :meth:`add` has said that it is enough."""
        spent = self._cpu()
        cpu = None if spent is None or self._spent is None else (spent - self._spent) / self._total
        found = series(self._rates)
        return Rate(found.middle, found.low or 0.0, found.high or 0.0, cpu)

    def _restart(self) -> None:
        self._rates.clear()
        self._total = 0
        self._spent = self._cpu()
        self._open()

    def _open(self) -> None:
        self._batches = self._images = 0
        self._excluded = 0.0
        self._opened = self._clock()

    def _is_enough(self, elapsed: float) -> bool:
        if elapsed >= self._seconds:
            return len(self._rates) >= 2
        if len(self._rates) < BLOCKS or elapsed < SOON:
            return False
        within = series(self._rates).within
        return within is not None and within <= WELL_KNOWN


def clock(device: torch.device) -> Callable[[], float]:
    """Seconds, once a GPU has done what it was given; on a CPU nothing is outstanding."""
    if device.type != "cuda":
        return time.perf_counter

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now
