"""Ends training between two batches once somebody asked for it; all ranks after the same one."""

import math
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from strobe.attach.ranks import common_store
from strobe.process.fork import children
from strobe.process.signals import Requests

PATIENCE = 2.0  # seconds for a step of a lone process to end


class Agreement:
    """The batch after which all ranks do what one of them was asked for; they tell each other through a store.

    The first rank proposes one some way ahead. Each says how many batches have ended there, and ends none after the
    proposed one before all have said so: where a rank is beyond it, all go on to the next batch of that one.
    """

    def __init__(self, what: str) -> None:
        self.number: int | None = None  # the signal by which some rank was asked
        self._asked, self._proposal, self._after = (f"strobe/{what}{key}" for key in ("", " proposed", " after"))
        self._proposed: int | None = None  # batch
        self._agreed: int | None = None
        self._settled = threading.Event()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be agreed on."""
        return self._settled.is_set()

    def is_due(self, batches: int) -> bool:
        """Whether it is to be done after so many batches. It waits for the answer where this may be the batch."""
        if self._proposed is None or batches < self._proposed:
            return False
        self._settled.wait()
        return self._agreed is not None and batches >= self._agreed

    def look(self, store: Any, trainer: Any, number: int | None, done: Callable[[], int], ahead: int) -> None:
        """Tell the other ranks of a request, or hear of theirs; ``done`` tells how many batches have ended."""
        if number is not None:
            store.set(self._asked, str(number))
        elif store.check([self._asked]):
            number = int(store.get(self._asked))
        if number is None:
            return
        self.number = number
        rank, ranks = trainer.global_rank, trainer.world_size
        if rank == 0 and self._proposed is None:
            store.set(self._proposal, str(done() + ahead))
        if self._proposed is None and store.check([self._proposal]):
            self._proposed = int(store.get(self._proposal))  # from now on this rank does not pass it
            store.set(f"{self._proposal} {rank}", str(done()))
        all_done = [f"{self._proposal} {rank}" for rank in range(ranks)]
        if rank == 0 and store.check(all_done):
            last = max(self._proposed or 0, 1 + max(int(store.get(key)) for key in all_done))
            store.set(self._after, str(last))
        if store.check([self._after]):
            self._agreed = int(store.get(self._after))
            self._settled.set()

    def give_up(self) -> None:
        """The first rank, which keeps the store, has gone: nobody waits for an answer any more."""
        self._settled.set()


class Ending(Callback):
    """Ends ``fit`` and ``test`` where no rank waits for another.

    Several ranks agree on the last batch, and in the same way on the step after which Lightning answers SLURM's
    SIGUSR1: it saves, for which all of them wait for each other, and puts the job back into the queue. A thread does
    so: only the last batch may wait.

    Attributes:
        ranks: the processes that this one started, once it was asked; it must end them.
    """

    def __init__(self, requests: Requests) -> None:
        self.ranks: list[subprocess.Popen[bytes]] = []
        self._requests = requests
        self._store: Any = None
        self._trainer: Any = None
        self._batches = self._seen = self._lately = 0  # that ended: now, until the latest look, and just before it
        self._end = Agreement("end")
        self._requeues = 0  # that are done
        self._requeue = Agreement("requeue 0")
        self._slurm: int | None = None  # its signal, until that is answered

    def join(self, trainer: Any) -> None:
        """Take part in its training, which may wait long for other ranks before it begins."""
        self._trainer = trainer
        trainer.callbacks.append(self)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Become the last callback, so that a step ends after all others; from here on requests wait for its end."""
        trainer.callbacks = [*(one for one in trainer.callbacks if one is not self), self]
        self._store = common_store()
        self._requests.patience = PATIENCE if self._store is None else math.inf

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Requests wait no more."""
        self._requests.patience = 0.0

    def on_train_start(self, *_: Any) -> None:
        """Hear SLURM's signal in place of Lightning, whose handler would run in the middle of a step."""
        handler = signal.getsignal(signal.SIGUSR1)
        if self._store is not None and type(handler).__module__.startswith(("lightning.", "pytorch_lightning.")):
            self._lightnings: Any = handler
            signal.signal(signal.SIGUSR1, self._hear_slurm)

    def _hear_slurm(self, *_: Any) -> None:
        self._slurm = int(signal.SIGUSR1)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Let others write what they have recorded."""
        self._requests.patience = math.inf

    def on_train_batch_end(self, *_: Any) -> None:
        """Requeue the job or end training, after the step on which the ranks agreed."""
        self._batches += 1
        if self._requeue.is_due(self._batches):
            self._lightnings(signal.SIGUSR1, None)
            self._requeues += 1
            self._slurm, self._requeue = None, Agreement(f"requeue {self._requeues}")
        self._end_if_due()

    def on_validation_batch_end(self, *_: Any) -> None:
        """End validation: not every rank within it, or those beyond it would wait for the others."""
        self._batches += 1
        self._end_if_due()

    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]

    def _end_if_due(self) -> None:
        if self._end.is_due(self._batches):
            self._requests.number = self._requests.number or self._end.number
        elif self._store is not None:
            return
        self._requests.check()

    def look(self, number: int | None) -> int | None:
        """Tell the other ranks of a request, or hear of theirs; called in a thread, several times a second."""
        if number is not None:
            self._take_over()
        # The latest look may have been a moment ago, so that of two it is the larger one.
        lately, self._lately, self._seen = self._lately, self._batches - self._seen, self._batches
        ahead = 2 + 3 * max(lately, self._lately)
        if self._store is not None:
            for agreement, asked in ((self._end, number), (self._requeue, self._slurm)):
                if not agreement.is_settled:
                    try:
                        agreement.look(self._store, self._trainer, asked, lambda: self._batches, ahead)
                    except RuntimeError:
                        agreement.give_up()
        return number or self._end.number

    def _take_over(self) -> None:
        """Lightning watches over processes that it started, and kills this one when one of them ends."""
        if self._trainer is not None and not self.ranks:
            self.ranks += (started := getattr(self._trainer.strategy.launcher, "procs", []))
            started.clear()

    def kill(self) -> None:
        """Kill the ranks that this process started, and their loader workers, which would live on for seconds."""
        self._take_over()
        for process in self.ranks:
            workers = children(process.pid)
            process.kill()
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.ranks:
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)

    def leave(self) -> None:
        """Wait until the ranks that this process started have ended; those that wait for this one learn of its end."""
        if self.ranks and dist.is_initialized():
            with suppress(RuntimeError):
                dist.destroy_process_group()
        for process in self.ranks:
            process.terminate()  # one that has not joined yet heard nothing
        for process in self.ranks:
            process.wait()
