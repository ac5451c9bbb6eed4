"""Ranks that measure together: what each of them found, and what the first one decides."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from strobe.callbacks.lightnings import Trainer
from strobe.errors import StrobeError
from strobe.measure.timing import Agree, Rate

DEADLINE = 60.0  # seconds that a rank waits for another one in a collective
PATIENCE = 120.0  # and to hear of it: longer, because that one may be waiting in a collective
IDLE = 3600.0  # and for the first one to say what is measured next
PAUSE, LONGEST_PAUSE = 1e-4, 0.05  # seconds between two looks: few while somebody waits for long


class LostRankError(StrobeError):
    """Another rank failed, ended, or does not answer; the text is a sentence."""


class Ranks:
    """All ranks of a training that stops for a measurement, or has ended.

    They talk through a store of their own, which outlives a collective that failed. Each measurement has a number;
    within it, ranks say things under names.

    Attributes:
        rank: this process's.
        size: how many there are.
        lost: why they cannot measure together any more; None while they can.
    """

    def __init__(
        self, store: Store, rank: int, size: int, *, backend: str = "gloo", processes: Sequence[Any] = ()
    ) -> None:
        self.rank, self.size = rank, size
        self.lost: str | None = None
        self._backend = backend
        self._store, self._processes, self._number = store, processes, 0
        self._last: int | None = None

    @property
    def end_together(self) -> bool:
        """Whether a measurement that fails on one rank may end the process of another, as NCCL's watchdog does."""
        return "nccl" in self._backend

    def begin(self, what: list[str] | None = None) -> list[str]:
        """Begin the next measurement; returns what the first rank says that it is."""
        if self.lost:
            raise LostRankError(self.lost)
        self._number += 1
        return list(self.first("what", what, patience=IDLE))

    def next(self) -> list[str] | None:
        """What the first rank measures next; None when it has enough."""
        with suppress(LostRankError):
            return self.begin()
        return None

    def first(self, name: str, value: Any, *, patience: float | None = None) -> Any:
        """What the first rank says."""
        if self.rank == 0:
            self._say(name, value)
            return value
        return self._hear(name, 0, patience)

    def all(self, name: str, value: Any = None) -> list[Any]:
        """What each rank says."""
        self._say(name, value)
        return [self._hear(name, rank) for rank in range(self.size)]

    def slowest(self, rate: Rate | None) -> Rate | None:
        """The rate of all together, at the pace of the slowest, as each step of training waits for all of them."""
        rates = [Rate(**one) for one in self.all("rate", rate and asdict(rate)) if one]
        if len(rates) < self.size:
            return None
        last, cpu = min(rates, key=lambda one: one.median), [one.cpu_seconds for one in rates]
        mean = None if None in cpu else sum(one for one in cpu if one is not None) / self.size
        low = min(one.low for one in rates)
        return Rate(self.size * last.median, self.size * low, self.size * last.high, mean)

    def fail(self, why: str) -> str:
        """Tell the others that this rank's measurement failed; returns the cause, which may be another's failure."""
        if self.lost:
            return self.lost
        if "Timed out waiting" in why:  # gloo
            why = f"it waited {DEADLINE:g} s for another rank"
        with suppress(RuntimeError):  # the store's, when the first rank has ended
            for rank in range(self.size):
                if self._store.check([key := self._key("failed", rank)]):
                    return f"rank {rank}: {self._store.get(key).decode()}"
            self._store.set(self._key("failed", self.rank), why)
        return f"rank {self.rank}: {why}"

    def regroup(self) -> None:
        """Collectives from here on are of a new group: the last one may have failed on some rank, and hang."""
        self.all("ready")
        if dist.is_initialized():
            dist.destroy_process_group()
        store, deadline = PrefixStore(f"group{self._number}", self._store), timedelta(seconds=DEADLINE)
        dist.init_process_group(self._backend, store=store, rank=self.rank, world_size=self.size, timeout=deadline)

    def in_step(self) -> Agree:
        """For a :class:`~strobe.measure.timing.Meter`: each block is as long as the first rank's, and the last too."""
        blocks = iter(range(1 << 62))

        def agree(size: int, last: bool, _: int) -> tuple[int, bool]:
            size, last = self.first(f"block{next(blocks)}", [size, last])
            return size, last

        return agree

    def at_once(self) -> Agree:
        """For a :class:`~strobe.measure.timing.Meter`: ranks begin together, and end when the first one says so."""
        self.all("start")

        def agree(size: int, last: bool, blocks: int) -> tuple[int, bool]:
            if not blocks:  # the warm-up
                return size, last
            if self.rank != 0:
                return size, blocks > 1 and self._store.check([self._key("stop", 0)])
            if last:
                self._say("stop", value=True)
            return size, last

        return agree

    def ended(self) -> str | None:
        """Which of the ranks that were started here has failed, in words."""
        codes = enumerate((process.poll() for process in self._processes), start=1)
        return next((f"rank {rank} has ended with code {code}" for rank, code in codes if code), None)

    def is_last(self, step: int, *, enough: bool, ahead: int) -> bool:
        """Whether all ranks train no further than this step, once the first one has ``enough``.

        It says so ``ahead`` steps before, among which the ranks must wait for each other: nobody waits to hear of it.
        """
        if self._last is None and self.rank == 0 and enough:
            self._last = step + ahead
            self._say("last", self._last)
        elif self._last is None and self.rank and self._store.check([self._key("last", 0)]):
            self._last = self.first("last", None)
        if self._last is not None and step > self._last:
            raise LostRankError(f"rank {self.rank} was ahead of the others: it does not wait for them in each update")
        return step == self._last

    def leave(self) -> None:
        """This rank takes part in nothing more; one that did not answer is ended."""
        with suppress(RuntimeError):
            self._store.set(f"left/{self.rank}", "")
        for process in self._processes if self.lost else ():
            process.kill()

    def _key(self, name: str, rank: int) -> str:
        return f"{self._number}/{name}/{rank}"

    def _say(self, name: str, value: Any) -> None:
        self._store.set(self._key(name, self.rank), json.dumps(value))

    def _hear(self, name: str, rank: int, patience: float | None = None) -> Any:
        key, failed = self._key(name, rank), self._key("failed", rank)
        pause, until = PAUSE, time.monotonic() + (patience := patience or PATIENCE)
        try:
            while True:
                # Asked first: it may say this and end between two questions.
                ended = 0 < rank <= len(self._processes) and self._processes[rank - 1].poll() is not None
                ended = ended or self._store.check([f"left/{rank}"])
                if self._store.check([key]):
                    return json.loads(self._store.get(key))
                if self._store.check([failed]):
                    raise LostRankError(f"rank {rank}: {self._store.get(failed).decode()}")
                if ended:
                    self.lost = f"rank {rank} has ended"
                elif time.monotonic() > until:
                    self.lost = f"rank {rank} did not answer within {patience:g} s"
                if self.lost:
                    raise LostRankError(self.lost)
                time.sleep(pause)
                pause = min(LONGEST_PAUSE, 1.5 * pause)
        except RuntimeError:  # the store's, which the first rank keeps
            self.lost = "rank 0 has ended"
            raise LostRankError(self.lost) from None


@contextmanager
def together(trainer: Trainer, *, wanted: bool = True) -> Iterator[Ranks | None]:
    """The ranks of a trainer whose process group stands; None for a lone one, or if the first one does not want it.

    Each rank enters this, and stays in it for as long as it takes part.
    """
    ranks = None
    with suppress(RuntimeError):  # a rank has ended already
        ranks = meet(trainer, wanted=wanted) if trainer.world_size > 1 and dist.is_initialized() else None
    try:
        yield ranks
    finally:
        if ranks:
            ranks.leave()


def meet(trainer: Trainer, *, wanted: bool = True) -> Ranks | None:
    """The ranks of a trainer whose process group stands; all call this at once. From here on they watch each other."""
    host, first, watched = os.environ["MASTER_ADDR"], trainer.global_rank == 0, list[Any]()
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False) if first and wanted else None
    port: list[Any] = [store and store.port]
    dist.broadcast_object_list(port)
    if port[0] is None:
        return None
    # Lightning watches over processes that it started, and kills all when one fails.
    if procs := getattr(trainer.strategy.launcher, "procs", None):
        watched += procs
        procs.clear()
    store = store or TCPStore(host, port[0], is_master=False, wait_for_workers=False)
    backend = dist.get_backend()
    return Ranks(store, trainer.global_rank, trainer.world_size, backend=backend, processes=watched)
