"""The loops of a training that a script writes itself: which of them trains, and where its steps begin and end."""

import time
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import torch

from strobe.attach.settings import Asked
from strobe.callbacks.clock import Clock
from strobe.callbacks.loop import LoopPhases
from strobe.callbacks.rows import StepLog
from strobe.measure.contention import Readings

MANY = 4  # optimizers of one training, from which on it makes them as it goes


class Role(Enum):
    """What a loop is to its training.

    A CANDIDATE's first update makes it TRAINING or FOREIGN. The first update of a loop that was sure to be TRAINING
    may make it FOREIGN, too, which lasts until its next event: then it is TRAINING, of a training of its own. At its
    end each is OTHER; so is a CANDIDATE without an update, and a VALIDATION once the loop around it goes on.
    """

    CANDIDATE = "its first update will show whether it trains"
    TRAINING = "its batches are the steps"
    VALIDATION = "it runs without gradients within the loop that trains"
    FOREIGN = "its first update was another training's"
    OTHER = "it is over, or its batches are part of another loop's steps, as in a zip"


@dataclass(eq=False, slots=True)
class Loop:
    """One pass over a loader."""

    tracker: "Tracker"
    asked: Asked
    role: Role = Role.OTHER
    waits: bool = False  # for a batch, in a step of another loop's
    began: int = 0  # ns
    batches: int = 0
    released: bool = False  # by ``next(iter(loader))``: whether its batch is trained on will be seen


class _Record(Protocol):
    phases: LoopPhases
    clock: Clock
    log: StepLog
    machine: Readings

    def begin_epoch(self) -> None: ...

    def look_at_batch(self, batch: Any) -> None: ...

    def end_step(self) -> None: ...

    def end(self, error: BaseException) -> None: ...


class Tracker:
    """Follows the loops of a training by their batches and updates, and begins and ends the steps of its record.

    Attributes:
        current: the loop that trains, or may: CANDIDATE, TRAINING or FOREIGN; None between loops.
        validation: the one within it.
        updating: the one whose steps end with updates, as no loader gives its batches.
        several: whether other loops began beside the current one, as in a zip.
    """

    def __init__(self, record: _Record) -> None:
        self.current: Loop | None = None
        self.several = False
        self.validation: Loop | None = None
        self.updating: Loop | None = None
        self._record = record
        self._updates_before = 0  # the current loop
        self._has_batch = False  # whose step has not ended
        self._validated = 0.0  # seconds since the last step

    def owns(self, optimizer: Any) -> bool:
        """Whether an update that begins belongs to this training; the first one of a loop shows what the loop is."""
        if (loop := self.current) is None:
            return self.updating is not None  # or it is outside all loops
        phases = self._record.phases
        first = phases.updates == self._updates_before > 0 and phases.learned < MANY
        if (first and not phases.knows(optimizer)) or (self.updating and loop.role is Role.CANDIDATE):
            loop.role = Role.FOREIGN
        if loop.role is Role.CANDIDATE:
            self._begin_epoch(loop)
            phases.change("forward")
        return loop.role is not Role.FOREIGN

    def begin(self, loop: Loop, *, sure: bool = True) -> None:
        """A loop begins: an epoch, or one beside if that is not sure; within a training loop perhaps a validation."""
        loop.began, phases = time.perf_counter_ns(), self._record.phases
        if sure:
            self._updates_before = phases.updates
            self._begin_epoch(loop)
            phases.change(None)  # the script makes the loader's iterator, which waits for data
        elif self.current is not None and not torch.is_grad_enabled():
            self.validation, loop.role = loop, Role.VALIDATION
            if self._has_batch and phases.computed:
                self._end_step()
                phases.change(None)
        elif self.current is self.updating:  # None, or updates end its steps: a loop over a loader says more
            if self.current is not None:
                self.leave(self.current)
            self._updates_before = phases.updates
            self.current, loop.role = loop, Role.CANDIDATE
            self._record.log.between = False
        else:
            self.several = True

    def fetch(self, loop: Loop) -> None:
        """The script asks for a batch, and has done with the one before."""
        phases = self._record.phases
        if phases.failure is not None:
            raise phases.failure
        if loop.role is Role.TRAINING:
            if self.validation is not None:  # which the script has left and holds
                self._has_batch = False
                self.end(self.validation)
            if self._has_batch:
                self._end_step()
            elif self._validated or self._record.clock.updates:  # or it has shown that the loop trains
                self._begin_step()
            phases.change("forward" if loop is self.updating else "data_wait")
        elif self.current is None:
            self.begin(loop, sure=False)  # the script goes on with one that another had ended
        elif self.current.role is Role.TRAINING and torch.is_grad_enabled():
            phases.enter("data_wait")
            loop.waits = True

    def fetched(self, loop: Loop, batch: Any) -> None:
        """The script has a batch."""
        loop.batches += 1
        if loop.role is Role.TRAINING:
            self._has_batch = True
            self._record.look_at_batch(batch)
            self._record.phases.change("forward")
        elif loop.waits:
            self._record.phases.leave_until("data_wait")
            loop.waits = False

    def updated(self, optimizer: Any) -> None:
        """An optimizer has stepped: where no loader gives batches, that may end a step, and the next begins."""
        if (loop := self.updating) is None or self.current not in (None, loop):
            return
        if loop.asked.loader.end_step(optimizer):
            if self.current is None:
                self._begin_epoch(loop)
            self.fetch(loop)
            self.fetched(loop, None)
            self._record.machine.read_on()

    def release(self, loop: Loop) -> None:
        """The script holds its iterator no more; if it took one batch, it may still train on that."""
        only = loop.role is Role.TRAINING and loop.batches == 1
        loop.released = only and self._has_batch and not self._record.clock.updates
        if not loop.released:
            self.end(loop)

    def settle(self) -> None:
        """A loop begins, or training ends: what was released is over, and was a step if it has updated anything."""
        loop = self.current
        if loop is not None and loop.released and loop.role is Role.TRAINING:
            self._has_batch = self._has_batch and bool(self._record.clock.updates)
            self.end(loop)

    def end(self, loop: Loop) -> None:
        """A loop has ended, or was left; a batch that updated nothing is then no step."""
        record, role = self._record, loop.role
        loop.role = Role.OTHER
        if role is Role.TRAINING:
            self.current, self.validation = self.validation, None
            if self.current is not None:  # the script holds it, and may go on with it
                self.current.role = Role.CANDIDATE
            if self._has_batch and record.clock.updates:
                self._end_step()
            record.phases.change(None)
            self._begin_step()
            self._has_batch, record.log.between = False, True
            record.machine.read_on()
        elif role is not Role.OTHER:
            self._validated += (time.perf_counter_ns() - loop.began) / 1e9
            if role is Role.VALIDATION:
                self.validation = None
            else:
                self.current = None
            record.log.between = self.current is None
            if self._has_batch:  # it preceded the step that its batch is for
                self._begin_step()
        elif loop.waits:
            record.phases.leave_until("data_wait")
            loop.waits = False

    def break_off(self, _: Loop, error: BaseException) -> None:
        """A loader has failed, and the training with it."""
        self._record.end(error)

    def leave(self, loop: Loop) -> None:
        """Another loop begins while the script holds this one: when the last step of this one ended is not known."""
        if loop.role is Role.TRAINING:
            self._has_batch = False
        self.end(loop)

    def interrupted(self, *, by_epoch: bool) -> Loop | None:
        """The loop that is over where another one begins, though the script holds it; a new epoch ends one more."""
        if self.current is not None and self.current.role is not Role.TRAINING:
            return self.current
        return self.validation or (self.current if by_epoch else None)

    def stop(self) -> None:
        """The record is over."""
        self.current = self.validation = None

    def _begin_epoch(self, loop: Loop) -> None:
        self._begin_step(epoch=loop is not self.updating)
        self.current, loop.role, self._has_batch = loop, Role.TRAINING, False
        self._record.begin_epoch()

    def _begin_step(self, *, epoch: bool = False) -> None:
        """Begin a step now; what has passed since the last one is validation, or lies between."""
        self._record.log.begin(self._validated, epoch=epoch)
        self._validated = 0.0

    def _end_step(self) -> None:
        self._record.end_step()
        self._has_batch = False
