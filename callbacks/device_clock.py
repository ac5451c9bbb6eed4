"""What a GPU did in each phase of a step, from events that are read later, so training never waits for them."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from .accelerators import module_of
from .columns import EXPOSED, GAP

DEVICE_PHASES = ("transfer", "prepare", "forward", "backward", "optimizer")  # in which a step submits its work
MOST_PENDING = 1000  # steps whose events are kept
MOST_MARKS = 1000  # changes of phase in a step

_IDLE = len(DEVICE_PHASES)
_WAIT = _IDLE + 1  # for other ranks, within one of the others
_PLACE: dict[str | None, int] = {phase: place for place, phase in enumerate(DEVICE_PHASES)}

_Mark = tuple[int, Any]  # the phase that begins, its event


class DeviceClock:
    """Attributes the time of an accelerator's stream to the phases of a step.

    An event is put into the stream where a phase begins, and is reached when all work before it is done. A phase's
    time on the device is what passes between two events. That holds the time in which the device starves within a
    phase, because the host submits its work too slowly; `idle` is what passes outside these phases, whether the
    device still has work from there or waits for the host, as it does for data. A trace tells how busy it was.

    All events go into the stream of `device` that is current when the clock is made, which also begins the first step;
    or, from then on, into the one in which an optimizer steps, as a script may compute in another.
    At most ``MOST_PENDING`` steps lie unread: beyond that, which the few thousand launches that a driver queues do not
    allow unless nobody calls ``ready``, the oldest one is waited for. What follows the first ``MOST_MARKS`` changes of
    phase in a step counts as idle: only a long validation has that many, and ``restart`` drops it. Events are reused.

    Events are made by `event`, by default as the device's module of torch does, `torch.cuda.Event` for instance.
    """

    def __init__(self, event: Callable[[], Any] | None = None, *, device: torch.device | None = None) -> None:
        module = module_of(device or torch.device("cuda"))
        own = event is None and hasattr(module, "is_current_stream_capturing")  # of graphs, which MPS lacks
        self._captures = module.is_current_stream_capturing if own else lambda: False
        has_streams = event is None and module is not torch.mps
        self._current: Callable[[], list[Any]] = lambda: [module.current_stream(device)] if has_streams else []
        self._streams = self._current()
        self._new = event or partial(module.Event, enable_timing=True)
        self._unused: list[Any] = []
        # Whether it is a step or a gap between steps, and the marks. A step's last event begins the next.
        self._pending: deque[tuple[bool, list[_Mark]]] = deque()
        self._read: list[dict[str, float]] = []
        self._latest: dict[str, float] = {}  # step that the device has completed
        self._marks: list[_Mark] = []
        self._place = _IDLE
        self._begin()

    def mark(self, phase: str | None) -> None:
        """Work submitted from now on belongs to this phase; to none if it is no such phase."""
        place = _PLACE.get(phase, _IDLE) if len(self._marks) < MOST_MARKS else _IDLE
        if place == self._place:
            return
        if phase == "optimizer" and not self._captures():
            self._streams = self._current()
        if self._mark(place):
            self._place = place

    def wait(self) -> None:
        """Work submitted until `waited` waits for other ranks, within the current phase."""
        if len(self._marks) < MOST_MARKS:
            self._mark(_WAIT)

    def waited(self) -> None:
        """Work submitted from now on does not wait."""
        if self._marks[-1][0] == _WAIT:
            self._mark(self._place)

    def _mark(self, place: int) -> bool:
        if self._captures():
            return False  # the CUDA graph that is being captured would break
        self._marks.append((place, self._record()))
        return True

    def lap(self) -> None:
        """End a step; the next one begins in the same phase."""
        end = (self._place, self._record())
        self._marks.append(end)
        self._pending.append((True, self._marks))
        self._marks = [end]
        self._bound()

    def restart(self) -> None:
        """Begin a step now; work submitted since the last one ended belongs to no step."""
        ended = self._marks
        self._begin()
        self._pending.append((False, [*ended, *self._marks]))
        self._bound()

    def ready(self) -> list[dict[str, float]]:
        """Seconds of the steps that the device has completed, each returned once, in order; does not wait.

        Each has `total`, the phases and `idle`, which add up to `total`, and `exposed_wait`, within them. `gap`, which
        lies between it and a step that was begun by ``restart``, is added before that next step is returned.
        """
        while self._pending and not self._captures() and _end(self._pending[0]).query():
            self._take_oldest()
        read, self._read = self._read, []
        return read

    def finish(self) -> list[dict[str, float]]:
        """The remaining steps, after waiting for the device."""
        if self._pending:
            _end(self._pending[-1]).synchronize()
        return self.ready()

    def _begin(self) -> None:
        self._marks = [(self._place, self._record())]

    def _record(self) -> Any:
        event = self._unused.pop() if self._unused else self._new()
        event.record(*self._streams)
        return event

    def _bound(self) -> None:
        """Wait for the oldest step if too many are unread."""
        if len(self._pending) > MOST_PENDING:
            _end(self._pending[0]).synchronize()
            self._take_oldest()

    def _take_oldest(self) -> None:
        is_step, marks = self._pending.popleft()
        if is_step:
            seconds, waited = [0.0] * (_IDLE + 1), 0.0
            (place, since), *later = marks
            within = place
            self._unused.append(since)
            for next_place, event in later:
                took = since.elapsed_time(event) / 1000
                if place == _WAIT:
                    waited += took
                else:
                    within = place
                seconds[within] += took
                place, since = next_place, event
                self._unused.append(event)
            self._unused.pop()  # begins what comes next
            phases = dict(zip((*DEVICE_PHASES, "idle"), seconds, strict=True))
            self._latest = {"total": sum(seconds), **phases, EXPOSED: waited}
            self._read.append(self._latest)
        else:
            *past, begun = [event for _, event in marks]
            self._latest[GAP] = self._latest.get(GAP, 0.0) + past[0].elapsed_time(begun) / 1000
            self._unused += past


def _end(pending: tuple[bool, list[_Mark]]) -> Any:
    """The event that ends a step, or a gap."""
    return pending[1][-1][1]
