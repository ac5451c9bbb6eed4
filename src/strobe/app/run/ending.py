"""Ends training between two steps once somebody asked for it; all ranks after the same one."""

import math
import os
import signal
import subprocess
from contextlib import suppress
from typing import Any

import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from strobe.attach.ranks import common_store
from strobe.process.fork import children
from strobe.process.signals import Requests

PATIENCE = 2.0  # seconds for a step of a lone process to end


class Ending(Callback):
    """Ends ``fit`` and ``test`` where no rank waits for another.

    A rank that was asked tells the first one, through the store by which they found each other, and that one says
    which step is the last. A thread does so: a step waits for nothing. Several ranks agree in the same way on the
    step after which Lightning answers SLURM's SIGUSR1: it saves, for which all of them wait for each other, and puts
    the job back into the queue.

    Attributes:
        ranks: the processes that this one started, once it was asked; it must end them.
    """

    def __init__(self, requests: Requests) -> None:
        self.ranks: list[subprocess.Popen[bytes]] = []
        self._requests = requests
        self._store: Any = None
        self._trainer: Any = None
        self._steps = self._seen = self._lately = 0  # that were trained: now, until the latest look, and just before it
        self._last: int | None = None  # step
        self._requeues = 0  # that are done
        self._requeue_at: int | None = None  # step
        self._requeue = False  # whether SLURM asked for one more

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
        self._requeue = True

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Let others write what they have recorded."""
        self._requests.patience = math.inf

    def on_train_batch_end(self, *_: Any) -> None:
        """Requeue the job or end training, after the step on which the ranks agreed."""
        self._steps += 1
        if self._requeue_at is not None and self._steps >= self._requeue_at:
            self._lightnings(signal.SIGUSR1, None)
            self._requeues += 1
            self._requeue, self._requeue_at = False, None
        if self._store is None or (self._last is not None and self._steps >= self._last):
            self._requests.check()

    def on_validation_batch_end(self, *_: Any) -> None:
        """End validation: its batches wait for no other rank."""
        if self._store is None or self._last is not None:
            self._requests.check()

    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]

    def look(self, number: int | None) -> int | None:
        """Tell the other ranks of a request, or hear of theirs; called in a thread, several times a second."""
        if number is not None:
            self._take_over()
        # The latest look may have been a moment ago, so that of two it is the larger one.
        lately, self._lately, self._seen = self._lately, self._steps - self._seen, self._steps
        if self._store is not None:
            ahead = self._steps + 2 + 3 * max(lately, self._lately)
            with suppress(RuntimeError):  # the first rank, which keeps the store, has gone
                if self._last is None:
                    number, self._last = self._agree("end", number, ahead)
                if self._requeue_at is None:
                    asked = int(signal.SIGUSR1) if self._requeue else None
                    self._requeue_at = self._agree(f"requeue {self._requeues}", asked, ahead)[1]
        return number

    def _take_over(self) -> None:
        """Lightning watches over processes that it started, and kills this one when one of them ends."""
        if self._trainer is not None and not self.ranks:
            self.ranks += (started := getattr(self._trainer.strategy.launcher, "procs", []))
            started.clear()

    def _agree(self, what: str, number: int | None, ahead: int) -> tuple[int | None, int | None]:
        """The signal that some rank got, and the step after which all obey it; each is None if not known yet."""
        asked, agreed = f"strobe/{what}", f"strobe/{what} after"
        if self._trainer.global_rank:
            if number is not None:
                self._store.set(asked, str(number))
            if self._store.check([agreed]):
                number, step = map(int, self._store.get(agreed).split())
                return number, step
            return number, None
        if number is None and self._store.check([asked]):
            number = int(self._store.get(asked))
        if number is None:
            return None, None
        # One rank may have ended the next step before another has ended this one, and each looks now and then.
        self._store.set(agreed, f"{number} {ahead}")
        return number, ahead

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
