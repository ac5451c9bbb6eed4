"""The loops that a script runs over ``strobe.watch``: where each begins and ends, and to which training it belongs."""

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from threading import Lock, current_thread, get_ident, main_thread
from types import FrameType
from typing import Any

import torch

from strobe.attach.place import has_stopped, tell
from strobe.attach.ranks import rank
from strobe.attach.settings import Asked
from strobe.attach.tracking import Loop, Role, Tracker
from strobe.attach.training import Training, recording, training_of

_beginning = Lock()  # held while a thread looks at the open record, and may begin another one


class Batches(Iterator[Any]):
    """The batches of one loop, for the script alone: the loop is over where the script lets go of them.

    That may be the loader's end, or a ``break``, a ``return`` or an error in the loop's body.
    """

    def __init__(self, loop: Loop) -> None:
        self.source: Iterator[Any] = iter(())
        self._loop = loop

    def __next__(self) -> Any:
        self._tell(Tracker.fetch)
        try:
            batch = next(self.source)
        except StopIteration:
            self._tell(Tracker.end)
            raise
        except BaseException as error:
            self._tell(Tracker.break_off, error)
            raise
        self._tell(Tracker.fetched, batch)
        return batch

    def __len__(self) -> int:
        return len(self.source)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "source":  # not set yet
            raise AttributeError(name)
        return getattr(self.source, name)

    def __del__(self) -> None:
        training = recording[0] if recording else None
        if training is not None and (os.getpid(), get_ident()) == (training.pid, training.thread):
            self._tell(Tracker.release)

    def _tell(self, event: Callable[..., None], *given: Any) -> None:
        loop = self._loop
        training = recording[0] if recording else None
        if training is None or training.loops is not loop.tracker:
            return
        if get_ident() != training.thread:
            if training.phases.failure is None:  # hooks cannot be removed while the other thread may be in them
                training.phases.failure = RuntimeError("another thread asks for the batches than the one that began")
        elif loop.role is Role.FOREIGN:
            training.guarded(_hand_over, training, loop)
            self._tell(event, *given)
        else:
            training.guarded(event, training.loops, loop, *given)


def batches_of(asked: Asked) -> Batches | None:
    """Those of a loop that begins now, still without a source; None where nothing is to be recorded."""
    if has_stopped() or not _beginning.acquire(blocking=False):
        return None
    try:
        loop = _loop_of(asked)
    except Exception as error:
        tell(error, None, rank())
        return None
    finally:
        _beginning.release()
    return None if loop is None else Batches(loop)


def _loop_of(asked: Asked) -> Loop | None:
    trains = torch.is_grad_enabled()  # or it is an evaluation
    for training in list(recording):
        if training.pid != os.getpid():
            recording.remove(training)  # of the process that this one was forked from
            continue
        if training.thread != get_ident():
            return None
        training.guarded(training.loops.settle)
        if training.unasked and not asked.unasked:
            training.end()
            continue
        same = training.is_of(asked)
        if held := training.loops.interrupted(by_epoch=bool(same) and trains):
            if held.role is Role.FOREIGN:
                training.guarded(_hand_over, training, held)
            else:
                training.guarded(training.loops.leave, held)
            return _loop_of(asked)
        if same is False and trains:
            training.end()
        elif (same is None or asked.unasked) and trains and training.has_only_evaluated:
            training.drop()
        else:
            loop = Loop(training.loops, asked)
            training.loops.begin(loop, sure=bool(same) and trains)
            return loop
    if not trains or (new := training_of(asked)) is None:
        return None
    loop = Loop(new.loops, asked)
    new.open(loop)
    _heed()
    return loop


def _hand_over(training: Training, loop: Loop) -> None:
    """Another training has begun in this loop of a training: end the record, and begin one for it."""
    loop.role = Role.OTHER
    training.end()
    if (new := training_of(loop.asked)) is not None:
        loop.tracker = new.loops
        new.open(loop)


def begin_updates(asked: Asked, optimizer: Any) -> None:
    """An optimizer has stepped in no loop; ``asked.loader``, its ``Updates``, says where steps end from now on."""
    if has_stopped() or not _beginning.acquire(blocking=False):  # or another thread begins one
        return
    try:
        for looked in [one for one in recording if one.thread != get_ident() and one.has_only_evaluated]:
            looked.drop()
        if is_recording() or (training := training_of(asked)) is None:
            return
        training.open(Loop(training.loops, asked))
        training.guarded(training.loops.updated, optimizer)
        _heed()
    finally:
        _beginning.release()


def is_recording() -> bool:
    """Whether a record is open in this process."""
    return any(training.pid == os.getpid() for training in recording)


def close_unasked() -> None:
    """End the open record of a loop that the script does not ask for."""
    for training in [one for one in recording if one.unasked]:
        training.end()


def close(error: BaseException | None = None) -> None:
    """End the open record, if there is one; ``error`` is what ended the training."""
    for training in list(recording):
        training.end(error)


def _heed() -> None:
    """Let SIGTERM and SIGHUP end the record before they end the process, where the script has no handler of its own."""
    if current_thread() is main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _asked_to_end)


def _asked_to_end(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    try:
        if is_recording():  # or this is a process that the script has forked
            close(KeyboardInterrupt(number))
    finally:
        os.kill(os.getpid(), number)


@atexit.register
def _at_exit() -> None:
    # What ended the script, once Python has printed it.
    error = getattr(sys, "last_value", None)
    close(error if isinstance(error, BaseException) else None)
