"""Ends a training of several ranks once one of them was asked to end: each of them after the same batch."""

import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from strobe.attach.ranks import common_store
from strobe.callbacks.lightnings import Callback
from strobe.process.fork import children
from strobe.process.signals import DEADLINE, Requests

LONGEST = 600.0  # seconds for another rank to say how far it has come, which usually takes one
PATIENCE = 2.0  # seconds for a process that was killed to be gone
Place = tuple[int, int]  # how far a rank has come: batches of training, and batches of validation or test since then
NEVER: Place = (sys.maxsize, 0)


class Agreement:
    """Of all ranks, on the batch after which they do what one of them was asked for.

    It is the first batch that none of them had ended when it heard. A thread of each tells the others how far it had
    come, through the store by which the ranks found each other, so that a rank may be within a batch meanwhile. One
    that has ended its batch waits until it knows of all.
    """

    def __init__(self, what: str, store: Any, rank: int, ranks: int, place: Place = (0, 0)) -> None:
        self.number: int | None = None  # of the signal, once this rank has heard
        self._store = store
        self._asked, self._told = f"strobe/{what}", [f"strobe/{what}/{one}" for one in range(ranks)]
        self._rank, self._place = rank, place
        self._heard_at: Place | None = None
        self._hearing = threading.Lock()
        self._farthest = NEVER
        self._known = threading.Event()

    def look(self, number: int | None) -> None:
        """Tell the others of this signal, or hear of one that another got."""
        try:
            if self._heard_at is None and (number is not None or self._store.check([self._asked])):
                if number is not None:
                    self._store.set(self._asked, str(number))
                self.number = number or int(self._store.get(self._asked))
                with self._hearing:
                    self._heard_at = self._place
                self._tell(self._heard_at)
            if self._heard_at is not None and not self._known.is_set() and self._store.check(self._told):
                told = [self._store.get(key).decode().split() for key in self._told]
                self._farthest = max((int(trained), int(since)) for trained, since in told)
                self._known.set()
        except RuntimeError:  # the first rank, which keeps the store, has gone
            if self._heard_at is not None and not self._known.is_set():
                self._farthest = self._heard_at
                self._known.set()

    def is_due(self, place: Place) -> bool:
        """Whether the batch that this rank has just ended is the one; a TimeoutError where others do not answer."""
        with self._hearing:
            self._place, heard_at = place, self._heard_at
        if heard_at is None or place <= heard_at:
            return False
        if not self._known.wait(LONGEST):
            raise TimeoutError(f"Another rank did not say in {LONGEST:.0f} s how far it has come: it has died or hangs")
        return place > self._farthest

    def leave(self) -> None:
        """Let no other rank wait for this one, which trains no more."""
        if self._heard_at is None:
            with suppress(RuntimeError):
                self._tell(NEVER)

    def _tell(self, place: Place) -> None:
        self._store.set(self._told[self._rank], f"{place[0]} {place[1]}")


class Ending(Callback):
    """Ends ``fit`` and ``test``, by ``end(number)``, where no rank waits for another.

    Lightning answers SLURM's signal between two batches, too: it saves, for which several ranks wait for each other,
    and puts the job back into the queue. They agree on the batch in the same way. ``name`` tells trainings of one
    process apart.
    """

    def __init__(self, requests: Requests, end: Callable[[int], None], name: str = "") -> None:
        self._requests, self._end_by, self._name = requests, end, name
        self._trainer: Any = None
        self._place: Place = (0, 0)
        self._end: Agreement | None = None  # of several ranks
        self._requeue: Agreement | None = None
        self._requeues = 0  # that are done
        self._slurm_asks = False

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Join the other ranks, and hear SLURM's signal where Lightning would save in the middle of a step."""
        self._trainer = trainer
        connector = trainer._signal_connector
        if connector._slurm_sigusr_handler_fn != self._hear_slurm:
            self._lightnings_requeue = connector._slurm_sigusr_handler_fn
            connector._slurm_sigusr_handler_fn = self._hear_slurm
        if self._end is None and common_store() is not None:
            self._requeue, self._end = self._agreement("requeue 0"), self._agreement("end")

    def _agreement(self, what: str) -> Agreement:
        ranks = self._trainer.global_rank, self._trainer.world_size
        return Agreement(f"{self._name}/{what}", common_store(), *ranks, self._place)

    def _hear_slurm(self, *_: Any) -> None:
        self._slurm_asks = True

    def on_train_batch_end(self, *_: Any) -> None:
        """Requeue the job or end training, if this batch is the one."""
        self._pass((self._place[0] + 1, 0))

    def on_validation_batch_end(self, *_: Any) -> None:
        """The same within validation."""
        self._pass((self._place[0], self._place[1] + 1))

    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]

    def _pass(self, place: Place) -> None:
        self._place = place
        if self._end is None or self._requeue is None:
            if self._slurm_asks:
                self._slurm_asks = False
                self._lightnings_requeue(signal.SIGUSR1, None)
            self._requests.check()
            return
        if self._requeue.is_due(place):
            self._lightnings_requeue(signal.SIGUSR1, None)
            self._requeues += 1
            self._slurm_asks, self._requeue = False, self._agreement(f"requeue {self._requeues}")
        if self._end.is_due(place):
            self._requests.number = self._requests.number or self._end.number
            self._end_by(self._requests.number or 0)

    def look(self, number: int | None) -> int | None:
        """Tell the other ranks of a request, or hear of theirs; called in a thread, several times a second."""
        requeue, end = self._requeue, self._end
        if requeue is None or end is None:
            return number
        requeue.look(int(signal.SIGUSR1) if self._slurm_asks else None)
        end.look(number)
        return end.number

    def kill(self) -> None:
        """Kill the ranks that this process started, and their loader workers, which would live on for seconds."""
        started = self.started()
        for process in started:
            workers = children(process.pid)
            process.kill()
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)

    def started(self) -> "list[subprocess.Popen[bytes]]":
        """The ranks that this process started. Lightning no longer watches over them: it would kill this one, too."""
        procs = [] if self._trainer is None else getattr(self._trainer.strategy.launcher, "procs", [])
        started = [one for one in procs if isinstance(one, subprocess.Popen)]
        procs.clear()
        return started


class OfScript(Ending):
    """Of a script's training: SIGTERM to one of several ranks waits for the end of the batch on which they agree.

    Lightning begins a broadcast wherever a rank is, for which another one may never come. From that batch on its own
    way to end follows, on all ranks. SIGHUP, where the script leaves it alone, is as good as SIGTERM; but the exit code
    says that it came, as it would without a record.

    It is made before Lightning registers its handlers, and has the same ``name`` on all ranks. Where one does not come
    so far in time, ``late`` leaves a record, and its process ends.
    """

    def __init__(self, trainer: Any, name: str, late: Callable[[int], None]) -> None:
        super().__init__(Requests(self._is_heard), self._let_lightning_end, name)
        self._requests.patience = math.inf
        self._process, self._late = os.getpid(), late
        self._connector = trainer._signal_connector
        self._lightnings = self._connector._sigterm_notifier_fn
        self._connector._sigterm_notifier_fn = self._hear
        if trainer.world_size > 1:
            self.setup(trainer, None, "fit")
        if self._end is not None and threading.current_thread() is threading.main_thread():
            self._requests.watch(self._give_up, self.look, DEADLINE if trainer.global_rank == 0 else DEADLINE / 2)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, which a copied trainer's connector has, only passes on."""
        lightnings = ("_lightnings", "_lightnings_requeue")
        kept = {name: value for name, value in vars(self).items() if name in lightnings}
        return kept | {"_process": None, "_end": None}

    @property
    def number(self) -> int | None:
        """Of the signal that came, to whichever rank; None so far."""
        return self._requests.number

    def hear_hangup(self) -> None:
        """Hear SIGHUP as Lightning hears SIGTERM by now, until it restores what was heard before."""
        handler = signal.getsignal(signal.SIGTERM)
        if self._is_heard(signal.SIGTERM) and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            signal.signal(signal.SIGHUP, handler)

    def tell(self, error: BaseException) -> None:
        """Let the error by which Lightning ends say that SIGHUP was the reason."""
        if self.number == signal.SIGHUP and isinstance(error, SystemExit) and not error.code:
            error.code = 128 + self.number

    def close(self) -> None:
        """Give Lightning its handlers back, and let no rank wait for this one."""
        self._requests.close()
        for agreement in (self._requeue, self._end):
            if agreement is not None:
                agreement.leave()
        self._requeue = self._end = None
        for name in ("_sigterm_notifier_fn", "_slurm_sigusr_handler_fn"):
            vars(self._connector).pop(name, None)

    def _is_heard(self, number: int) -> bool:
        """Whether Lightning's handler, and no other in its place, would call this one."""
        return self._hear in getattr(signal.getsignal(number), "signal_handlers", ())

    def _hear(self, number: int, frame: Any) -> None:
        if os.getpid() == self._process:  # and no other one that the script has forked
            self._requests.hear(number, frame)
        if os.getpid() != self._process or self._end is None:
            self._lightnings(number, frame)

    def _hear_slurm(self, *given: Any) -> None:
        super()._hear_slurm()
        if self._end is None:
            self._lightnings_requeue(*given)

    def _pass(self, place: Place) -> None:
        if self._end is not None:
            super()._pass(place)

    def _let_lightning_end(self, _: int) -> None:
        self._connector.received_sigterm = True

    def _give_up(self, number: int) -> None:
        self._late(number)
        self.kill()
