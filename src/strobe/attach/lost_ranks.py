"""Which of several ranks has died: one that is left says so, and gets the time to leave a record.

Lightning starts the other ranks of a machine from the first one, and kills all of them soon after one has died. Where
another program starts them, as torchrun does, that one says which has died.
"""

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from strobe.callbacks.lightnings import Callback
from strobe.process.fork import ending
from strobe.process.output import note
from strobe.records.joining import EVERY, IMPATIENCE, is_whole, note_failure, says_gone

PATIENCE = 30.0  # seconds for a record


class LostRanks(Callback):
    """Notes in the directory of a training, from one of its ranks, which others have died.

    Args:
        run_dir: of all ranks.
        told: whether somebody else says so where an error has ended training.
    """

    def __init__(self, run_dir: Path, *, told: bool = False) -> None:
        self._run_dir, self._told = run_dir, told
        self._first = self._local = 0
        self._others: list[Any] = []
        self._parent: int | None = None
        self._noted: set[int] = set()
        self._lock = threading.Lock()

    def on_fit_start(self, trainer: Any, *_: Any) -> None:
        """Learn who the others are; from now on Lightning waits before it kills those that are left."""
        self._local, launcher = trainer.local_rank, trainer.strategy.launcher
        self._first = trainer.global_rank - self._local  # of this machine
        self._others = [one for one in getattr(launcher, "procs", ()) if hasattr(one, "poll")]
        started = [type(one).__name__ for one in (launcher, getattr(trainer.strategy, "cluster_environment", None))]
        if self._local and started == ["_SubprocessScriptLauncher", "LightningEnvironment"]:
            self._parent = os.getppid()  # the first one
        for thread in threading.enumerate() if self._others else ():
            if thread.name == "child-process-observer" and (end := getattr(thread, "_terminate_all", None)):
                vars(thread)["_terminate_all"] = partial(self._end_all, end)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Note those whose end is what this error says; a connection breaks a moment before its process has ended."""
        patience = time.monotonic() + IMPATIENCE
        while says_gone(exception) and not is_whole(self._run_dir) and not self._find(told=self._told):
            if time.monotonic() > patience:
                break
            time.sleep(EVERY)

    def _find(self, *, told: bool = False) -> bool:
        """Note those who have died, and say so; whether any have."""
        with self._lock:
            for rank, how in self._dead():
                if rank in self._noted:
                    continue
                self._noted.add(rank)
                said = f"Rank {rank} has died: {how}"
                with suppress(OSError):
                    note_failure(self._run_dir, rank, ChildProcessError(said))
                if not told and self._local <= 1:
                    note(f"{said}. What all ranks recorded: strobe report {shlex.quote(str(self._run_dir))}")
            return bool(self._noted)

    def _dead(self) -> Iterator[tuple[int, str]]:
        for rank, process in enumerate(self._others, self._first + 1):
            if (process.poll() or 0) < 0:  # or it can say itself why
                yield rank, ending(process.returncode)
        if self._parent not in (None, os.getppid()):
            yield self._first, "its process has ended without a word"

    def _end_all(self, end: Callable[[], None]) -> None:
        """In Lightning's thread: end all ranks, unless this one ends by itself meanwhile."""
        self._find()
        time.sleep(PATIENCE)
        end()
