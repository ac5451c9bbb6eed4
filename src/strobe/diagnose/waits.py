"""Calls of a trace in which the host waits for the GPU, and which operator and phase they belong to."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strobe.callbacks.tracefile import Event, end_of, name_of, number_of, outer_first, start_of

_WAITS = re.compile(
    r"(cuda|hip)(Stream|Device|Event)Synchronize|cu(Stream|Ctx|Event)Synchronize|(cuda|hip)Memcpy(2D|3D|WithStream)?"
)
_BLOCKING = "DtoH pageable"  # such a copy waits for the GPU, though its call is named asynchronous

_Thread = tuple[str, str]  # process, thread


@dataclass(frozen=True)
class Wait:
    """One call. Its `caller` is the event of the operator that Python called, or the call's own."""

    call: Event
    caller: Event
    phase: str | None  # the outermost annotation of the training thread around it


def find_waits(
    calls: Iterable[Event],
    operators: Iterable[Event],
    annotations: Sequence[Event],
    *,
    step: Event,
    copies: Mapping[Any, str],
) -> list[Wait]:
    """The waiting calls of the training thread, and of autograd's threads, which work for it.

    Args:
        calls: Of the CUDA or HIP runtime.
        operators: PyTorch's.
        annotations: Those of all threads.
        step: The range of a step, which lies in the training thread.
        copies: The kind of each copy by its correlation number.
    """
    main = _thread(step)
    ranges: dict[_Thread, list[Event]] = {main: []}
    others: dict[_Thread, list[Event]] = defaultdict(list)
    for event in operators:
        thread = _thread(event)
        if thread in ranges:
            ranges[thread].append(event)
        else:
            others[thread].append(event)
            if thread[0] == main[0] and name_of(event).startswith("autograd::engine::"):
                ranges[thread] = others.pop(thread)
    found: dict[_Thread, list[Event]] = defaultdict(list)
    for call in calls:
        if _WAITS.fullmatch(name_of(call)) or copies.get(number_of(call, "correlation")) == _BLOCKING:
            found[_thread(call)].append(call)
    phases = _outermost(event for event in annotations if _thread(event) == main)
    begins = [start_of(phase) for phase in phases]
    waits = []
    for thread in found.keys() & ranges.keys():
        for call, caller in _callers(found[thread], ranges[thread]):
            place = bisect_right(begins, start_of(call)) - 1
            inside = place >= 0 and start_of(call) < end_of(phases[place])
            waits.append(Wait(call, caller, name_of(phases[place]) if inside else None))
    return waits


def _callers(calls: Sequence[Event], operators: Sequence[Event]) -> Iterable[tuple[Event, Event]]:
    """Each call of a thread with the outermost of the `aten::` operators directly around it.

    That is the one Python called: `aten::item` calls `aten::_local_scalar_dense`, and `aten::to` `aten::copy_`.
    Another kind of operator counts if it is the innermost, and the call itself if there is none.
    """
    wanted = {id(call) for call in calls}
    around: list[Event] = []
    for event in sorted([*operators, *calls], key=outer_first):
        while around and end_of(around[-1]) <= start_of(event):
            around.pop()
        if id(event) not in wanted:
            around.append(event)
            continue
        caller = around[-1] if around else event
        for operator in reversed(around):
            if not name_of(operator).startswith("aten::"):
                break
            caller = operator
        yield event, caller


def _outermost(annotations: Iterable[Event]) -> list[Event]:
    """Those within a step that no other one holds, in order."""
    found: list[Event] = []
    for event in sorted(annotations, key=outer_first):
        if not name_of(event).startswith("ProfilerStep#") and (not found or start_of(event) >= end_of(found[-1])):
            found.append(event)
    return found


def _thread(event: Event) -> _Thread:
    return str(event.get("pid")), str(event.get("tid"))
