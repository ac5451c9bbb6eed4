"""From what torch.profiler exports to the trace that is kept: whole steps, every engine's waiting, loader workers."""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence

from .ranges import Step
from .tracefile import Event, Trace, category_of, end_of, is_range, name_of, start_of

Clock = Callable[[int], float]
SLACK_US = 100  # a step that begins so soon after its range does has nothing in between


def clock_of(trace: Trace) -> Clock:
    """From `time.monotonic_ns` to the trace's `ts`: microseconds of the wall clock since its base.

    The profiler converts its ticks to the wall clock by readings of both; so does this, to within a few
    microseconds (tests/callbacks/test_assemble.py).
    """
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(20)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])
    offset = wall - (before + after) // 2 - int(trace.get("baseTimeNanoseconds", 0))
    return lambda monotonic: (monotonic + offset) / 1e3


def drop_event(trace: Trace, name: str) -> None:
    """Remove the ranges called `name`."""
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("name") != name]


def name_process(trace: Trace, pid: int, name: str) -> None:
    """Call a process by its part in the run, and its main thread so (whose number on Linux is the process's)."""
    for event in trace["traceEvents"]:
        if event.get("ph") == "M" and event.get("pid") == pid:
            if event["name"] == "process_name":
                event["args"] = {"name": name}
            elif event["name"] == "thread_name" and event["tid"] == pid:
                event["args"] = {"name": "main thread"}


def begin_steps(trace: Trace, steps: Sequence[Step], clock: Clock) -> None:
    """Move the beginning of each ProfilerStep range to that of its step.

    torch.profiler begins a step where the one before ended; validation and the end of an epoch, which lie between,
    belong to neither.
    """
    ranges = {event["name"]: event for event in trace["traceEvents"] if _is_step(event)}
    for step in steps:
        event = ranges.get(f"ProfilerStep#{step.number}")
        if event is None:
            continue
        start, end = clock(step.start), end_of(event)
        if start - event["ts"] < SLACK_US:
            continue
        around = [other for other in trace["traceEvents"] if other.get("tid") == event["tid"] and _is_cut(other, start)]
        start = max([start, *map(end_of, around)])
        if start < end:
            event["ts"], event["dur"] = start, end - start


def fit_updates(trace: Trace) -> None:
    """Let torch's `Optimizer.step#...` begin and end within the last `optimizer` range that it overlaps.

    With automatic optimization it is around forward and backward too, which its closure runs.
    """
    updates = sorted((e for e in trace["traceEvents"] if is_range(e) and name_of(e) == "optimizer"), key=start_of)
    for event in trace["traceEvents"]:
        if not is_range(event) or not name_of(event).startswith("Optimizer.step#"):
            continue
        place = bisect_left(updates, end_of(event), key=start_of) - 1
        if place >= 0 and updates[place].get("tid") == event.get("tid"):
            start = max(event["ts"], updates[place]["ts"])
            end = min(end_of(event), end_of(updates[place]))
            if start < end:
                event["ts"], event["dur"] = start, end - start


def name_fetches(trace: Trace) -> None:
    """Give each `fetch` range the one that the plugin counts as waiting for data, if it holds none.

    torch's own DataLoader writes `enumerate(DataLoader)#<iterator>.__next__`; other engines do not.
    """
    known = sorted(e["ts"] for e in trace["traceEvents"] if name_of(e).startswith("enumerate(DataLoader)#"))
    fetches = [e for e in trace["traceEvents"] if name_of(e) == "fetch" and category_of(e) == "user_annotation"]
    for fetch in fetches:
        place = bisect_left(known, fetch["ts"])
        if place == len(known) or known[place] > end_of(fetch):
            waiting = {key: fetch[key] for key in ("ph", "pid", "tid", "ts", "dur")}
            trace["traceEvents"].append(
                {**waiting, "cat": "cpu_op", "name": "enumerate(DataLoader)#loader.__next__", "args": {}}
            )


def keep_first_steps(trace: Trace, count: int) -> None:
    """Drop everything that begins after the first `count` steps."""
    steps = sorted(filter(_is_step, trace["traceEvents"]), key=start_of)
    if count < len(steps):
        end = steps[count]["ts"]
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("ph") == "M" or e.get("ts", 0) < end]


def _is_step(event: Event) -> bool:
    """Whether a range is a step's on the host; torch draws a copy on the GPU's tracks."""
    named = is_range(event) and name_of(event).startswith("ProfilerStep#")
    return named and category_of(event) != "gpu_user_annotation"


def _is_cut(event: Event, at: float) -> bool:
    """Whether a range other than a step or a Python frame reaches over a moment."""
    return (
        category_of(event) in ("cpu_op", "user_annotation") and not _is_step(event) and event["ts"] < at < end_of(event)
    )
