"""The record of a training whose loops a script writes itself: its steps, and how it ends."""

import contextlib
import os
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from threading import get_ident
from typing import Any

import torch

from strobe.attach import outside, settings
from strobe.attach.place import command, new_directory, records, stop, take_back, tell
from strobe.attach.ranks import rank, ranks, shared_directory
from strobe.attach.record import begin, complete, status_of, summarise
from strobe.attach.settings import Asked
from strobe.attach.tracking import Loop, Tracker
from strobe.attach.updates import FEWEST, Passes, Updates
from strobe.attach.weights import Looks
from strobe.callbacks.accelerators import is_accelerator
from strobe.callbacks.batches import elements_of, size_of
from strobe.callbacks.clock import Clock
from strobe.callbacks.columns import OWNED, rows_of
from strobe.callbacks.device_clock import DeviceClock
from strobe.callbacks.loop import LoopPhases, LoopTrace
from strobe.callbacks.rows import StepLog, StepRows
from strobe.callbacks.schedule import Schedule
from strobe.callbacks.waits import Waits
from strobe.diagnose.foreign import UNSEEN
from strobe.measure import contention
from strobe.probe.ceilings import ENOUGH
from strobe.process.output import note
from strobe.process.signals import is_of_handler
from strobe.records.files import BEGUN, make_room
from strobe.records.joining import note_failure

MOST_RECORDS = 20  # of a script
MINE = "Strobe"  # owns the time that recording takes
recording: list["Training"] = []  # at most one


class Training:
    """The record of one training, from its first loop on."""

    def __init__(self, asked: Asked, place: Path) -> None:
        loader = asked.loader
        self.pid, self.thread = os.getpid(), get_ident()
        self.rank, self.ranks = rank(), ranks()
        self.named, self.report, self.unasked = asked.optimizers is not None, asked.report, asked.unasked
        self.probe = asked.probe
        # A probe reads the loader after the script has let go of it; otherwise that keeps its own time.
        self.loader = settings.reference(loader) if self.probe is None else lambda: loader
        self.dataset = settings.reference(getattr(loader, "dataset", None))
        self.loops = Tracker(self)
        self.config = settings.loading_of(loader) | {"loop": True, "unasked": asked.unasked}
        self.known = settings.what_is_loaded(loader)
        with contextlib.suppress(Exception):
            self.known["batches_per_epoch"] = len(loader)
        self.trace: LoopTrace | None = None
        self.step = self.first_step = self.epoch = 0  # the first step of the epoch
        self.size: int | None = None  # of the batch
        self.elements: int | None = None  # of its tensors, among several ranks
        self.profiled = False
        self.machine = contention.Readings()
        self.device = device = settings.device_of(asked.optimizers)
        self.weights = Looks()
        self.schedule = settings.schedule_on(device, asked.schedule)
        self.clock = Clock(DeviceClock(device=device) if is_accelerator(device) else None)
        self.waits = Waits(self.clock) if self.ranks > 1 else None
        self.phases = LoopPhases(self.clock, asked.optimizers, self.loops.owns, self.waits)
        self.place, self.path = place, rows_of(place / "steps.csv", self.rank)
        rows = StepRows(self.path, [MINE], device=is_accelerator(device), ranks=self.ranks > 1)
        alone = device.type == "cpu" and self.ranks == 1
        self.log = StepLog(self.clock, rows, waits=self.waits, alone=alone)

    @outside.own_work()
    def open(self, loop: Loop) -> None:
        """Begin to record, with this loop."""
        recording.append(self)
        self.opened = self.stepped = time.monotonic()
        self.guarded(self._open, loop)

    def _open(self, loop: Loop) -> None:
        self.phases.watch_updates(hooks=not self.unasked)
        if self.rank == 0:
            begin(self._summary("failed", None), self.place)  # for a report where the process is killed
        if self.waits is not None:
            self.waits.install()
        if self.schedule and self.rank == 0 and not settings.keeps_its_profiler():
            place, schedule = self.place, Schedule(**self.schedule)
            loader = loop.asked.loader
            self.trace = LoopTrace(place / "tensorboard", place / "tables", schedule, loader, self.device)
            self.phases.parts.append(self.trace.ranges)
        self.clock.collect(True)
        if isinstance(loop.asked.loader, Updates):
            self.loops.updating, self.config["unloaded"] = loop, True
        self.loops.begin(loop)

    # --- what belongs to it

    def is_of(self, asked: Asked) -> bool | None:
        """Whether a loop is one of this training's; None if its updates will tell."""
        known = asked.optimizers is not None and (self.named or self.phases.optimizers)
        if known and not any(self.phases.knows(one) for one in asked.optimizers or ()):
            return False
        dataset = getattr(asked.loader, "dataset", None)
        if self.loader() is asked.loader:
            return True
        if dataset is None or self.dataset() is not dataset:
            return None
        if torch.is_grad_enabled() and "engine" in self.config:  # an epoch of a loader that is made anew
            self.config["engine"]["rebuilt"] = True
        return True

    @property
    def has_only_evaluated(self) -> bool:
        """Whether nothing was trained in the loops so far, which are over."""
        return not self.phases.updates and self.loops.current is None and self.trace is None

    def drop(self) -> None:
        """Leave no record."""
        self._let_go()
        self.log.close()
        take_back(self.place, [self.path] if self.rank else [self.path, self.place / BEGUN])

    # --- its steps

    def begin_epoch(self) -> None:
        """The next step is the first one of an epoch."""
        self.epoch += self.step > self.first_step  # or the one before had no step
        self.first_step = self.step
        if self.trace is not None:
            self.trace.begin()
            self.profiled = self.trace.recording

    def look_at_batch(self, batch: Any) -> None:
        """The script has the batch of the step."""
        self.size = size_of(batch)
        self.elements = elements_of(batch) if self.waits else None
        self.log.look_into(batch)
        if self.trace is not None:
            self.trace.fetched(self.epoch, self.step)

    def end_step(self) -> None:
        """The step is over."""
        self.phases.end_step()
        self.phases.change(OWNED + MINE)
        if self.step and not self.weights.over:  # the report shows how long the first one takes
            self._look_at_optimizers()
        images = None if self.size is None else self.size * self.ranks
        profiled, self.profiled = self.profiled, False
        if self.trace is not None:
            if self.schedule and self.step + 1 == self.schedule["wait"] and settings.keeps_its_profiler():
                self.trace.abandon()
            self.trace.end_step()
            self.profiled = self.trace.recording
        profiled = profiled or self.profiled
        self.log.end_step(self.step, self.epoch, images, profiled=profiled, elements=self.elements)
        self.step, self.stepped = self.step + 1, time.monotonic()
        if self.probe is not None and self.phases.updates:
            self.probe(self)

    # --- its end

    @outside.own_work()
    def end(self, error: BaseException | None = None) -> None:
        """End the record, and print the verdict; a second time does nothing."""
        if self not in recording or os.getpid() != self.pid:
            return
        trained = self.step >= FEWEST if self.loops.updating else self.phases.updates or self.trace
        if self.probe is not None and self.step >= ENOUGH and self.phases.updates and not isinstance(error, Exception):
            self.guarded(self.probe.end, self)
        if self.probe is not None or (self.unasked and not trained):
            self.guarded(self.drop)  # nobody has said that it would train
            return
        self.guarded(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        outside.trained(self.opened, self.stepped)
        if (summary := self.finish(error)) is not None:
            complete(summary, self.config, self.place, machine=self.machine.both(), steps=self.log, page=self.report)

    def finish(self, error: BaseException | None = None) -> dict[str, Any] | None:
        """Stop recording; returns the record, still without conclusions, and None on any rank but 0."""
        if self.phases.failure is not None:
            raise self.phases.failure
        self.loops.settle()
        self._let_go()
        if self.trace is not None:
            self.trace.finish(failed=error is not None)
        if self.rank == 0:
            make_room(self.place)
        self.log.close()
        if self.rank:
            if isinstance(error, Exception):
                note_failure(self.place, self.rank, error)
            return None
        if self.step and not self.phases.passes:
            self.config["loop"] = UNSEEN
        optimizers = [one for one in self.phases.optimizers if not isinstance(one, Passes)]
        self.config |= settings.changeable_of({"loader": settings.loaders_of(self.loader()), "optimizer": optimizers})
        return self._summary(status_of(error), error)

    def _summary(self, status: str, error: BaseException | None) -> dict[str, Any]:
        if self.step and not self.weights.over:
            self._look_at_optimizers()
        summary = summarise(
            None, self.place, status=status, error=error, metrics={}, device=self.device, world=self.ranks
        )
        summary |= self.weights.told | self.known
        devices = int(os.environ.get("LOCAL_WORLD_SIZE") or self.ranks)
        return summary | {"devices": devices, "script": command(), "settings": self.config}

    def _look_at_optimizers(self) -> None:
        optimizers = [one for one in self.phases.optimizers if not isinstance(one, Passes)]
        self.log.knows_updates = len(optimizers) == len(self.phases.optimizers)
        self.config["updates_itself"] = not self.log.knows_updates
        if optimizers:
            self.device, self.config["optimizer"] = settings.device_of(optimizers), settings.updating(optimizers)
            self.weights.look(optimizers)

    def _let_go(self) -> None:
        """Take every hook away; what still calls is not heard."""
        if self in recording:
            recording.remove(self)
        self.loops.stop()
        self.phases.forget()
        self.clock.collect(False)
        if self.waits is not None:
            self.waits.remove()

    def fail(self, error: Exception) -> None:
        """End the measuring after an error of Strobe's own."""
        if is_of_handler(error):  # such as torch's, of a loader worker that has died
            raise error
        with contextlib.suppress(Exception):
            self._let_go()
        if self.trace is not None:
            with contextlib.suppress(Exception):
                self.trace.abandon()
        with contextlib.suppress(Exception):
            self.log.close()
        tell(error, self.place, self.rank)

    def guarded(self, work: Callable[..., None], *given: Any) -> None:
        """Work whose error ends the record, and no more than that."""
        try:
            work(*given)
        except Exception as error:
            self.fail(error)


@cache
def _tell_of_more() -> None:
    note(f"Strobe has recorded {MOST_RECORDS} trainings of this script, and records no more of them.")
    outside.stop()


@outside.own_work()
def training_of(asked: Asked) -> "Training | None":
    """A new one; None on a rank that has not joined the others, or to which rank 0 has named no directory.

    Of those that a script does not ask for, None after ``MOST_RECORDS``: some train a model for each client, or fold.
    """
    if rank() and ranks() == 1:
        return None
    if asked.unasked and ranks() == 1 and len(records) >= MOST_RECORDS:  # of several only rank 0 counts them
        _tell_of_more()
        return None
    named = asked.directory if asked.probe is not None else None  # which the probing command has made
    if (place := named or shared_directory(rank(), ranks(), partial(new_directory, asked.directory))) is None:
        stop()  # or each loop would wait for rank 0
    return None if place is None else Training(asked, place)
