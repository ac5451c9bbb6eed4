"""The record of a training whose loops a script writes itself: its steps, its validations, and how it ends."""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any

import torch

from strobe.attach.place import command, new_directory, stop, take_back, tell
from strobe.attach.ranks import rank, ranks, shared_directory
from strobe.attach.record import begin, complete, status_of, summarise
from strobe.attach.settings import (
    Asked,
    device_of,
    keeps_its_profiler,
    loading_of,
    reference,
    schedule_on,
    updating,
    what_is_loaded,
)
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
from strobe.process.signals import is_of_handler
from strobe.records.files import BEGUN, make_room
from strobe.records.joining import note_failure

MINE = "Strobe"  # owns the time that recording takes
MANY = 4  # optimizers of one training, from which on it makes them as it goes
recording: list["Training"] = []  # at most one


@dataclass(eq=False, slots=True)
class Loop:
    """One pass over a loader, as its training knows it."""

    training: "Training"
    asked: Asked
    waits: bool = False  # in a step of another loop's
    began: int = 0
    batches: int = 0
    let_go: bool = False  # by ``next(iter(loader))``: whether its batch is trained on will be seen


class Training:
    """The record of one training, from its first loop on."""

    def __init__(self, asked: Asked, place: Path) -> None:
        loader = asked.loader
        self.pid, self.thread = os.getpid(), get_ident()
        self.rank, self.ranks = rank(), ranks()
        self.named, self.report, self.unasked = asked.optimizers is not None, asked.report, asked.unasked
        self.loader = reference(loader)
        self.dataset = reference(getattr(loader, "dataset", None))
        self.turns: Loop | None = None  # whose steps end with updates
        self.config = loading_of(loader) | {"loop": True, "unasked": asked.unasked}
        self.known = what_is_loaded(loader)
        with contextlib.suppress(Exception):
            self.known["batches_per_epoch"] = len(loader)
        self.trace: LoopTrace | None = None
        self.active: Loop | None = None  # that trains now
        # Another one, until its first update shows whether it trains; or a validation within the one that does.
        self.aside: Loop | None = None
        self.stranger: Loop | None = None  # whose first update belongs to another training
        self.step = self.first_step = self.epoch = 0  # the first one of the epoch
        self.size: int | None = None  # of the batch
        self.elements: int | None = None  # of its tensors, among several ranks
        self.validation = 0.0
        self.fetched_one = self.profiled = False
        self.before_loop = 0  # updates
        self.machine = contention.Readings()
        device = device_of(asked.optimizers)
        self.device, self.weights = device.type, Looks()
        self.schedule = schedule_on(device, asked.schedule)
        self.clock = Clock(DeviceClock(device=device) if is_accelerator(device) else None)
        self.waits = Waits(self.clock) if self.ranks > 1 else None
        self.phases = LoopPhases(self.clock, asked.optimizers, self._is_its_own, self.waits)
        self.place, self.path = place, rows_of(place / "steps.csv", self.rank)
        rows = StepRows(self.path, [MINE], device=is_accelerator(device), ranks=self.ranks > 1)
        alone = self.device == "cpu" and self.ranks == 1
        self.log = StepLog(self.clock, rows, waits=self.waits, alone=alone)

    def open(self, loop: "Loop") -> None:
        """Begin to record, with this loop."""
        recording.append(self)
        self.guarded(self._open, loop)

    def _open(self, loop: "Loop") -> None:
        self.phases.watch_updates(hooks=not self.unasked)
        if self.rank == 0:
            begin(self._summary("failed", None), self.place)  # for a report where the process is killed
        if self.waits is not None:
            self.waits.install()
        if self.schedule and self.rank == 0 and not keeps_its_profiler():
            place, schedule = self.place, Schedule(**self.schedule)
            self.trace = LoopTrace(place / "tensorboard", place / "tables", schedule, loop.asked.loader)
            self.phases.parts.append(self.trace.ranges)
        self.clock.collect(True)
        if isinstance(loop.asked.loader, Updates):
            self.turns, self.config["unloaded"] = loop, True
        self.begin(loop)

    # --- what belongs to it

    def is_of(self, asked: Asked) -> bool | None:
        """Whether a loop is one of this training's; None if its updates will tell."""
        known = asked.optimizers is not None and (self.named or self.phases.optimizers)
        if known and not any(self.phases.knows(one) for one in asked.optimizers or ()):
            return False
        dataset = getattr(asked.loader, "dataset", None)
        return self.loader() is asked.loader or (dataset is not None and self.dataset() is dataset) or None

    @property
    def has_only_evaluated(self) -> bool:
        """Whether nothing was trained in the loops so far, which are over."""
        return not self.phases.updates and self.active is None and self.trace is None

    def drop(self) -> None:
        """Leave no record."""
        self._let_go()
        self.log.close()
        take_back(self.place, [self.path] if self.rank else [self.path, self.place / BEGUN])

    def _is_its_own(self, optimizer: Any) -> bool:
        """An optimizer is about to step: with the first update of a loop it shows whose the loop is."""
        loop = self.aside if self.active is None else self.active
        if loop is None:
            return self.turns is not None  # or it is outside all loops
        fresh = self.phases.updates == self.before_loop > 0 and self.phases.learned < MANY
        if (fresh and not self.phases.knows(optimizer)) or (self.turns and loop is self.aside):
            self.stranger = loop  # to be told when torch does not call hooks
        if self.stranger is not None:
            return False
        if loop is self.aside:
            self.aside = None
            self._begin_epoch(loop)
            self.phases.change("forward")
        return True

    def _hand_over(self, loop: "Loop") -> None:
        """Another training has begun in this loop: end this record, and begin one for it."""
        self.active = self.aside = None
        self.end()
        if (training := training_of(loop.asked)) is not None:
            loop.training = training
            training.open(loop)

    # --- its loops

    def begin(self, loop: "Loop", *, sure: bool = True) -> None:
        """A loop begins: an epoch, or one beside if that is not sure; within a training loop perhaps a validation."""
        loop.began = time.perf_counter_ns()
        if sure:
            self.before_loop = self.phases.updates
            self._begin_epoch(loop)
            self.phases.change(None)  # the script makes the loader's iterator, which waits for data
        elif self.active is not None and not torch.is_grad_enabled():
            self.aside = loop
            if self.fetched_one and self.phases.computed:
                self._end_step()
                self.phases.change(None)
        elif self.active is self.turns:  # None, or updates end its steps: a loop over a loader says more
            if self.active is not None:
                self.leave(self.active)
            self.before_loop = self.phases.updates
            self.aside, self.log.between = loop, False

    def _begin_epoch(self, loop: "Loop") -> None:
        self._begin_step(epoch=loop is not self.turns)
        self.active = loop
        self.epoch += self.step > self.first_step  # or the one before had no step
        self.first_step, self.fetched_one = self.step, False
        if self.trace is not None:
            self.trace.begin()
            self.profiled = self.trace.recording

    def fetch(self, loop: "Loop") -> None:
        """The script asks for a batch, and has done with the one before."""
        if self.phases.failure is not None:
            raise self.phases.failure
        if loop is self.stranger:
            self._hand_over(loop)
            loop.training.fetch(loop)
        elif loop is self.active:
            if self.aside is not None:  # a validation that the script has left and holds
                self.fetched_one = False
                self.end_loop(self.aside)
            if self.fetched_one:
                self._end_step()
            elif self.validation or self.clock.updates:  # or it has shown that the loop trains
                self._begin_step()
            self.phases.change("forward" if loop is self.turns else "data_wait")
        elif self.active is None:
            if self.aside is None:  # the script goes on with one that another had ended
                self.begin(loop, sure=False)
        elif torch.is_grad_enabled():
            self.phases.enter("data_wait")  # of a loader beside, such as that of a zip
            loop.waits = True

    def fetched(self, loop: "Loop", batch: Any) -> None:
        """The script has a batch."""
        loop.batches += 1
        if loop is self.active:
            self.fetched_one, self.size = True, size_of(batch)
            self.elements = elements_of(batch) if self.waits else None
            self.log.look_into(batch)
            if self.trace is not None:
                self.trace.fetched(self.epoch, self.step)
            self.phases.change("forward")
        elif loop.waits:
            self.phases.leave_until("data_wait")
            loop.waits = False

    def turn(self, optimizer: Any) -> None:
        """An optimizer has stepped: where no loader gives batches, that may end a step, and the next begins."""
        if (loop := self.turns) is None or (self.active is not loop and (self.active or self.aside)):
            return
        if loop.asked.loader.end_step(optimizer):
            if self.active is None:
                self._begin_epoch(loop)
            self.fetch(loop)
            self.fetched(loop, None)
            self.machine.read_on()

    def let_go(self, loop: "Loop") -> None:
        """The script holds its iterator no more; if it took one batch, it may still train on that."""
        loop.let_go = loop is self.active and loop.batches == 1 and self.fetched_one and not self.clock.updates
        if not loop.let_go:
            self.end_loop(loop)

    def settle(self) -> None:
        """A loop begins, or training ends: what was let go is over, and was a step if it has updated anything."""
        if self.active is not None and self.active.let_go:
            self.fetched_one = self.fetched_one and bool(self.clock.updates)
            self.end_loop(self.active)

    def end_loop(self, loop: "Loop") -> None:
        """A loop has ended, or was left; a batch that updated nothing is then no step."""
        if loop is self.stranger:
            self._hand_over(loop)
            loop.training.end_loop(loop)
        elif loop is self.aside:
            self.validation += (time.perf_counter_ns() - loop.began) / 1e9
            self.aside, self.log.between = None, self.active is None
            if self.fetched_one:  # it preceded the step that its batch is for
                self._begin_step()
        elif loop is self.active:
            self.active = None
            if self.fetched_one and self.clock.updates:
                self._end_step()
            self.phases.change(None)
            self._begin_step()
            self.fetched_one, self.log.between = False, True
            self.machine.read_on()
        elif loop.waits:
            self.phases.leave_until("data_wait")
            loop.waits = False

    def leave(self, loop: "Loop") -> None:
        """Another loop begins while the script holds this one: when the last step of this one ended is not known."""
        if loop is self.stranger:
            self._hand_over(loop)
            return
        if loop is self.active:
            self.fetched_one = False
        self.end_loop(loop)

    def _begin_step(self, *, epoch: bool = False) -> None:
        """Begin a step now; what has passed since the last one is validation, or lies between."""
        self.log.begin(self.validation, epoch=epoch)
        self.validation = 0.0

    def _end_step(self) -> None:
        self.phases.end_step()
        self.phases.change(OWNED + MINE)
        if self.step and not self.weights.over:  # the report shows how long the first one takes
            self._look_at_optimizers()
        images = None if self.size is None else self.size * self.ranks
        profiled, self.profiled = self.profiled, False
        if self.trace is not None:
            if self.schedule and self.step + 1 == self.schedule["wait"] and keeps_its_profiler():
                self.trace.abandon()
            self.trace.end_step()
            self.profiled = self.trace.recording
        profiled = profiled or self.profiled
        self.log.end_step(self.step, self.epoch, images, profiled=profiled, elements=self.elements)
        self.step, self.fetched_one = self.step + 1, False

    # --- its end

    def broke(self, _: "Loop", error: BaseException) -> None:
        """A loader has failed, and the training with it."""
        self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """End the record, and print the verdict; a second time does nothing."""
        if self not in recording or os.getpid() != self.pid:
            return
        if self.unasked and not (self.step >= FEWEST if self.turns else self.phases.updates or self.trace):
            self.guarded(self.drop)  # nobody has said that it would train
            return
        self.guarded(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        if self.phases.failure is not None:
            raise self.phases.failure
        self.settle()
        self._let_go()
        if self.trace is not None:
            self.trace.finish(failed=error is not None)
        if self.rank == 0:
            make_room(self.place)
        self.log.close()
        if self.rank:
            if isinstance(error, Exception):
                note_failure(self.place, self.rank, error)
            return
        if self.step and not self.phases.passes:
            self.config["loop"] = UNSEEN
        summary = self._summary(status_of(error), error)
        complete(summary, self.config, self.place, machine=self.machine.both(), steps=self.log, page=self.report)

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
            self.device, self.config["optimizer"] = device_of(optimizers).type, updating(optimizers)
            self.weights.look(optimizers)

    def _let_go(self) -> None:
        """Take every hook away; what still calls is not heard."""
        if self in recording:
            recording.remove(self)
        self.active = self.aside = None
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


def training_of(asked: Asked) -> "Training | None":
    """A new one; None on a rank that has not joined the others, or to which rank 0 has named no directory."""
    if rank() and ranks() == 1:
        return None
    if (place := shared_directory(rank(), ranks(), partial(new_directory, asked.directory))) is None:
        stop()  # or each loop would wait for rank 0
    return None if place is None else Training(asked, place)
