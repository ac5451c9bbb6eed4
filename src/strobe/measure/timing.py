"""How everything is timed: warm up, count steps, stop in time, in blocks. Imports torch only for a GPU's clock.

There are two kinds of work. A training or a loader runs by itself and reports each finished step: a
:class:`Meter` turns these into a rate that is known well enough, a :class:`Window` into one block of so many seconds.
Work that is called is repeated by :func:`repeated`. Whatever is compared is measured in rounds or in turns, so a
machine that slows down slows all of it alike.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

    from strobe.measure.statistics import Estimate

WARMUP_STEPS = 3  # the first steps of a training pay for allocation and caches, and are not measured
FEWEST_STEPS = 3  # in a window, however long they take
PATIENCE = 2  # times the length of a window: the longest warm-up
BLOCK = 0.1  # seconds that a meter's block should last, so that the clock and synchronisation cost little
LOOKS = tuple(10 * 2**n for n in range(12))  # blocks after which a rate may be well known: to look at each invites luck
WELL_KNOWN = 0.02  # a 95% interval within this share of the median, on both sides
SOON = 1.0  # seconds: a rate is not called well known earlier
PAIRS, FEWEST_PAIRS = 6, 4  # of turns to compare two sides; fewer if steps are long

Clock = Callable[[], float]
Agree = Callable[[int, bool, int], tuple[int, bool]]
T = TypeVar("T")


@dataclass(frozen=True)
class Block:
    """Consecutive steps and the seconds that they took together."""

    images: int
    seconds: float
    steps: int

    @property
    def rate(self) -> float:
        """Images/s."""
        return self.images / self.seconds


@dataclass(frozen=True)
class Rate:
    """Images/s with a 95% interval, and core-seconds per image, None if they cannot be read."""

    median: float
    low: float
    high: float
    cpu_seconds: float | None


class _Timing:
    """Counts finished steps: first those of a warm-up, then timed ones.

    The clock waits for a GPU, so it is read only where a block begins or ends; otherwise the host's time decides.

    Attributes:
        steps: timed steps of the current block.
        images: in these steps.
    """

    def __init__(self, *, warmup: int, fewest: int, patience: float, clock: Clock) -> None:
        self.steps = self.images = 0
        self._warmup, self._fewest, self._patience, self._clock = warmup, fewest, patience, clock
        self._warm = 0  # steps
        self._began: float | None = None  # host's time at the end of the first step
        self._opened = self._excluded = 0.0
        self._untimed = 0  # images of steps that were taken out

    def exclude(self, seconds: float, images: int = 0) -> None:
        """Take time that passed since the last step out of the block, in which so many images were made ready."""
        self._excluded += seconds
        self._untimed += images

    def add(self, images: int) -> bool:
        """Count a finished step; returns whether it was the last one needed."""
        if self._warm < self._warmup:
            self._began = self._began or time.perf_counter()
            self._warm += 1
            if self._warm >= self._fewest and self._is_late(time.perf_counter() - self._began):
                self._warm = self._warmup
            if self._warm == self._warmup:
                self._begin()
            return False
        self.steps += 1
        self.images += images
        return self._is_last()

    def _is_late(self, passed: float) -> bool:
        """Whether the warm-up has taken too long to go on."""
        return passed > self._patience

    def _begin(self) -> None:
        """The warm-up is over."""
        self._open()

    def _is_last(self) -> bool:
        raise NotImplementedError

    def _open(self) -> None:
        self.steps = self.images = 0
        self._excluded = 0.0
        self._opened = self._clock()

    def _block(self) -> Block:
        """The current block, until now."""
        return Block(self.images, max(self._clock() - self._opened - self._excluded, 1e-9), self.steps)


class Meter(_Timing):
    """Counts batches in blocks until their rate is well known, at one of the planned ``LOOKS``, or the time is up.

    Args:
        seconds: counting ends so long after the first batch; at least two blocks are timed.
        multiple: a block has a multiple of so many batches, such as the number of workers that deliver them in turn.
        warmup: batches before the timed ones, at least ``multiple``, but at most a quarter of the time.
        clock: seconds, with all work done that was given to a device.
        cpu: core-seconds used so far; None where they cannot be read.
        agree: makes of a block's size, whether it was the last, and how many there were, the next one's size, and
            whether there is none. So several ranks that wait for each other in each step count the same ones.
    """

    def __init__(
        self,
        seconds: float,
        *,
        multiple: int = 1,
        warmup: int,
        clock: Clock = time.perf_counter,
        cpu: Callable[[], float | None] = time.process_time,
        agree: Agree | None = None,
    ) -> None:
        self._multiple = self._size = max(1, multiple)
        super().__init__(warmup=max(warmup, self._multiple), fewest=self._multiple, patience=seconds / 4, clock=clock)
        self._seconds = seconds
        self._least = min(BLOCK, seconds / 20)
        self._cpu = cpu
        self._agree = agree or (lambda size, last, _: (size, last))
        self._blocks: list[Block] = []

    def rate(self) -> Rate:
        """The rate; call this once :meth:`add` has returned True."""
        spent = self._cpu()
        images = sum(block.images for block in self._blocks)
        cpu = None if spent is None or self._spent is None else (spent - self._spent) / (images + self._untimed)
        estimate = self._estimate()
        return Rate(estimate.middle, estimate.low or 0.0, estimate.high or 0.0, cpu)

    def _begin(self) -> None:
        self._blocks.clear()
        self._untimed = 0
        self._spent = self._cpu()
        self._open()

    def _is_late(self, passed: float) -> bool:
        return self._agree(self._size, super()._is_late(passed), 0)[1]

    def _is_last(self) -> bool:
        if self.steps < self._size:
            return False
        block = self._block()
        self._blocks.append(block)
        size = self._size
        if block.seconds < self._least / 2:  # too short: begin again with longer ones
            growth = min(self._least / block.seconds, 10.0)
            size = math.ceil(size * growth / self._multiple) * self._multiple
        size, last = self._agree(size, size == self._size and self._is_enough(), len(self._blocks))
        if size != self._size:
            self._size = size
            self._begin()
            return False
        if not last:
            self._open()
        return last

    def _is_enough(self) -> bool:
        elapsed = time.perf_counter() - (self._began or 0.0)
        if elapsed >= self._seconds:
            return len(self._blocks) >= 2
        if len(self._blocks) not in LOOKS or elapsed < SOON:
            return False
        within = self._estimate().within
        return within is not None and within <= WELL_KNOWN

    def _estimate(self) -> "Estimate":
        from strobe.measure.statistics import series  # which imports NumPy

        return series([block.rate for block in self._blocks])


class Window(_Timing):
    """One block of steps: so many seconds, and whole epochs if there is time for one.

    Args:
        seconds: the length of the window; at least ``least`` steps are timed.
        warmup: steps before; fewer, but at least ``WARMUP_STEPS``, if they take ``PATIENCE`` times as long as the
            window: batches that workers have ready last longest where training is slow, and matter least there.
        patience: seconds of the longest warm-up, if it is another one.
        multiple: workers that deliver batches in turn; unless the window ends with an epoch, a multiple of this many
            is timed, so that it does not matter which worker's batch came first.
        epoch: images of an epoch; a window with a whole epoch ends with an epoch, if another would not fit.
        least: the fewest timed steps, however long they take.
        most: the most timed steps, or the next multiple.
        clock: seconds, with all work done that was given to a device.

    Attributes:
        block: what was timed, including time between epochs; None before the window's end.
    """

    def __init__(
        self,
        seconds: float,
        *,
        warmup: int = WARMUP_STEPS,
        patience: float | None = None,
        multiple: int = 1,
        epoch: int = 0,
        least: int = FEWEST_STEPS,
        most: float = math.inf,
        clock: Clock = time.perf_counter,
    ) -> None:
        patience = PATIENCE * seconds if patience is None else patience
        super().__init__(warmup=warmup, fewest=WARMUP_STEPS, patience=patience, clock=clock)
        self.epoch = epoch
        self.block: Block | None = None
        self._limit, self._multiple, self._least, self._most = seconds, multiple, least, most
        if not warmup:
            self._begin()

    @property
    def seconds(self) -> float:
        """What the block took; 0 before the window's end."""
        return self.block.seconds if self.block else 0.0

    def _begin(self) -> None:
        self._open()
        self._since = time.perf_counter()

    def _is_last(self) -> bool:
        if self._is_over(time.perf_counter() - self._since):
            self.block = self._block()
        return self.block is not None

    def _is_over(self, passed: float) -> bool:
        if self.steps < self._least:
            return False
        if self.steps >= self._most or passed >= self._limit:
            return self.steps % self._multiple == 0
        epochs, rest = divmod(self.images, self.epoch or math.inf)
        return rest == 0 and passed * (epochs + 1) / epochs > self._limit


def repeated(
    work: Callable[[], int],
    seconds: float = 0.0,
    *,
    warmup: int = 0,
    multiple: int = 1,
    clock: Clock = time.perf_counter,
) -> Block:
    """Call ``work``, which returns its number of images, until so many seconds have passed; at least once.

    Args:
        work: one step.
        seconds: no call begins after this.
        warmup: calls before, which are not timed.
        multiple: calls between readings of the clock.
        clock: seconds, with all work done that was given to a device.
    """
    for _ in range(warmup):
        work()
    images = steps = 0
    began = clock()
    while True:
        for _ in range(multiple):
            images += work()
        steps += multiple
        if (passed := clock() - began) >= seconds:
            return Block(images, passed, steps)


def clock(device: "torch.device") -> Clock:
    """A clock in seconds that first waits for the GPU's queued work; a CPU has none."""
    if device.type == "cpu":
        return time.perf_counter
    from strobe.callbacks.accelerators import synchronize  # which imports torch

    def now() -> float:
        synchronize(device)
        return time.perf_counter()

    return now


def shuffled(items: Sequence[T], number: int, seed: int) -> list[T]:
    """The items of round ``number`` in that round's own random order, fixed by the seed."""
    order = list(items)
    random.Random(f"{seed} {number}").shuffle(order)
    return order


def rounds(items: Sequence[T], numbers: Sequence[int], seed: int) -> Iterator[tuple[int, T]]:
    """Round after round, (its number, item): each holds every item, in a random order of its own."""
    return ((number, item) for number in numbers for item in shuffled(items, number, seed))


def mirrored(pair: Sequence[T], number: int) -> list[T]:
    """Two sides, A B in even rounds and B A in odd ones, so that a steady drift cancels out."""
    return list(pair if number % 2 == 0 else reversed(pair))


def by_turns(sides: Sequence[Callable[[float], Block]], seconds: float, *, step: float) -> list[float]:
    """How many times as fast the second side is as the first: a ratio of rates for each pair of turns, A B B A ...

    Args:
        sides: each works for so many seconds, and returns what it has done.
        seconds: of all turns together, if steps are short enough.
        step: seconds of the longest step, which decides the number of pairs.
    """
    pairs = PAIRS if 2 * PAIRS * step <= seconds else FEWEST_PAIRS
    ratios = []
    for number in range(pairs):
        rates = {place: sides[place](seconds / (2 * pairs)).rate for place in mirrored((0, 1), number)}
        ratios.append(rates[1] / rates[0])
    return ratios
