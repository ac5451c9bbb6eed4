"""What threads do: others that compute beside training, and may hold Python's interpreter; the one that trains.

Of that one also how many differentiable operations it makes, and what one costs however small its tensors are.
"""

import inspect
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .lines import Lines, core_seconds
from .worker_lines import WorkerLines

BUSY = 0.1  # cores: a thread that used less since the last look is not looked at
CHAIN, TRIES = 200, 5  # operations in a row; the fastest of so many rows is their cost
EVERY = 0.5  # seconds between two looks, each of which takes some microseconds a thread


@dataclass
class _Thread:
    name: str
    before: float  # core-seconds
    now: float


def _is_autograds(thread: threading.Thread) -> bool:
    """Whether a thread computes gradients: Python knows it once a hook there asks in which thread it runs."""
    if not isinstance(thread, threading._DummyThread):
        return False
    with suppress(OSError):
        return Path(f"/proc/self/task/{thread.native_id}/comm").read_text().startswith("pt_autograd_")
    return False


class Threads:
    """How much each thread that Python knows computes, except the calling one; threads that end are included.

    From the second look on also in which lines the calling one is, while ``phase`` says in which phase, and ``lasted``
    for how many seconds already; those of loader workers that start meanwhile, which write them into a folder in
    ``directory``, or those that ``workers`` looks at already; and how many differentiable operations the calling thread
    makes.
    """

    def __init__(
        self,
        phase: Callable[[], str],
        lasted: Callable[[], float],
        directory: Path,
        workers: WorkerLines | None = None,
    ) -> None:
        self._phase, self._lasted = phase, lasted
        self._lines: Lines | None = None
        self._workers = workers or WorkerLines(directory)
        self.operations = Operations()
        self._busy = dict[int, str]()  # names by ``ident``, at the last look
        self._began: float | None = None
        self._looked = 0.0
        self._threads: dict[int, _Thread] = {}

    def look(self, now: float) -> None:
        """Read their clocks, unless that was done just before ``now`` (time.monotonic)."""
        if now - self._looked < EVERY:
            return
        own, first = threading.get_native_id(), self._began is None
        if self._lines is None and not first:
            self._lines = Lines(self._phase, self._lasted, lambda: self._busy)
        looking = self._lines and self._lines.thread
        passed, busy = now - self._looked, dict[int, str]()
        self._began, self._looked = self._began or now, now
        for thread in threading.enumerate():
            number = thread.native_id
            if number is None or number == own or _is_autograds(thread) or (used := core_seconds(number)) is None:
                continue
            known = self._threads.setdefault(number, _Thread(thread.name, used if first else 0.0, used))
            if used - known.now >= BUSY * passed and thread.ident and thread is not looking:
                busy[thread.ident] = thread.name
            known.now = max(known.now, used)
        self._busy = busy

    def end(self) -> None:
        """Look at lines and operations no more. A second call does nothing."""
        self.operations.end()
        self._workers.end()
        if self._lines is not None:
            self._lines.end()

    def lines(self) -> list[dict[str, Any]]:
        """As ``Looks.records``: of the calling thread and of others; those of workers once looks have ended."""
        return (self._lines.looks.records() if self._lines else []) + self._workers.looks.records()

    def long_lines(self, usual: Mapping[str, float]) -> list[dict[str, Any]]:
        """Likewise, of the calling thread where a phase lasts far longer than these seconds."""
        return self._lines.looks.late(usual).records() if self._lines else []

    def calls(self, usual: Mapping[str, float]) -> list[dict[str, Any]]:
        """Likewise, the calls that only such long phases make, or what lies between steps."""
        return self._lines.looks.apart(usual).records() if self._lines else []

    def worker_threads(self) -> float | None:
        """How many of a worker's threads compute at once; 1 if the one that makes samples mostly waits for the others.

        None if no worker was seen.
        """
        own, libraries = self._workers.computed
        return 1 + libraries / own if own else None

    def cores(self) -> list[dict[str, Any]]:
        """``name`` and ``cores`` of those that computed, the busiest first; empty after only one look.

        Threads of one name count together, such as those that a loader begins in each epoch.
        """
        if self._began is None or self._looked <= self._began:
            return []
        seconds = self._looked - self._began
        cores = defaultdict[str, float](float)
        for one in self._threads.values():
            cores[one.name] += (one.now - one.before) / seconds
        busiest = sorted(cores, key=lambda name: -cores[name])
        return [{"name": name, "cores": cores[name]} for name in busiest if cores[name] > 0]


class Operations:
    """Counts the differentiable operations of the thread that makes it, until ``end``, at no cost to a step.

    Autograd numbers them in each thread (``Node::sequence_nr`` in ``torch/csrc/autograd/function.h``), so two numbers
    tell how many lie between.
    """

    def __init__(self) -> None:
        self._thread, self._first = threading.get_ident(), _number()
        self.costs: dict[str, float] | None = None

    def end(self) -> None:
        """Keep their ``count``, and what each costs at least, by phase; a second call does nothing.

        Another thread does not know them, nor does a torch that does not tell its numbers.
        """
        last, own = _number(), threading.get_ident() == self._thread
        if self.costs is None and last is not None and self._first is not None and own:
            self.costs = {"count": last - self._first, **fixed_seconds()}


def fixed_seconds() -> dict[str, float]:
    """Seconds that an operation on one number takes, ``forward`` from Python and ``backward``, on the CPU."""
    with torch.inference_mode(False), torch.enable_grad():
        weight = torch.zeros(1, device="cpu", dtype=torch.float32, requires_grad=True)
        forward, backward = zip(*(_chain(weight) for _ in range(TRIES)), strict=True)
    return {"forward": min(forward) / CHAIN, "backward": min(backward) / CHAIN}


def _chain(weight: torch.Tensor) -> tuple[float, float]:
    began, value = time.perf_counter(), weight
    for _ in range(CHAIN):
        value = value + 1.0
    turned = time.perf_counter()
    inspect.unwrap(torch.autograd.backward)(value)  # not by way of what counts a script's own
    return turned - began, time.perf_counter() - turned


def _number() -> int | None:
    """The number of this thread's next differentiable operation; None if torch does not tell."""
    ask = getattr(torch.autograd, "_get_sequence_nr", None)
    return None if ask is None else int(ask())
