"""From what torch.profiler exports to the trace that is kept: whole steps, every engine's waiting, loader workers."""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from callbacks.ranges import Step
from callbacks.tracefile import Trace

Event = dict[str, Any]
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
        start, end = clock(step.start), event["ts"] + event["dur"]
        if start - event["ts"] < SLACK_US:
            continue
        around = [other for other in trace["traceEvents"] if other.get("tid") == event["tid"] and _is_cut(other, start)]
        start = max([start, *(other["ts"] + other["dur"] for other in around)])
        if start < end:
            event["ts"], event["dur"] = start, end - start


def fit_updates(trace: Trace) -> None:
    """Let torch's `Optimizer.step#...` begin and end within the last `optimizer` range that it overlaps.

    With automatic optimization it is around forward and backward too, which its closure runs.
    """
    updates = [event for event in trace["traceEvents"] if event.get("name") == "optimizer" and event.get("ph") == "X"]
    updates.sort(key=_ts)
    starts = [_ts(event) for event in updates]
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and str(event.get("name")).startswith("Optimizer.step#"):
            place = bisect_left(starts, event["ts"] + event["dur"]) - 1
            if place >= 0 and updates[place].get("tid") == event.get("tid"):
                update = updates[place]
                start = max(event["ts"], update["ts"])
                end = min(event["ts"] + event["dur"], update["ts"] + update["dur"])
                if start < end:
                    event["ts"], event["dur"] = start, end - start


def name_fetches(trace: Trace) -> None:
    """Give each `fetch` range the one that the plugin counts as waiting for data, if it holds none.

    torch's own DataLoader writes `enumerate(DataLoader)#<iterator>.__next__`; other engines do not.
    """
    known = sorted(e["ts"] for e in trace["traceEvents"] if str(e.get("name")).startswith("enumerate(DataLoader)#"))
    fetches = [e for e in trace["traceEvents"] if e.get("name") == "fetch" and e.get("cat") == "user_annotation"]
    for fetch in fetches:
        place = bisect_left(known, fetch["ts"])
        if place == len(known) or known[place] > fetch["ts"] + fetch["dur"]:
            waiting = {key: fetch[key] for key in ("ph", "pid", "tid", "ts", "dur")}
            trace["traceEvents"].append(
                {**waiting, "cat": "cpu_op", "name": "enumerate(DataLoader)#loader.__next__", "args": {}}
            )


def keep_first_steps(trace: Trace, count: int) -> None:
    """Drop everything that begins after the first `count` steps."""
    steps = sorted((event for event in trace["traceEvents"] if _is_step(event)), key=lambda event: event["ts"])
    if count < len(steps):
        end = steps[count]["ts"]
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("ph") == "M" or _ts(event) < end]


def _is_step(event: Event) -> bool:
    """Whether a range is a step's on the host; torch draws a copy on the GPU's tracks."""
    named = event.get("ph") == "X" and str(event.get("name", "")).startswith("ProfilerStep#")
    return named and event.get("cat") != "gpu_user_annotation"


def _is_cut(event: Event, at: float) -> bool:
    """Whether a range other than a step or a Python frame reaches over a moment."""
    return (
        event.get("cat") in ("cpu_op", "user_annotation")
        and not _is_step(event)
        and event["ts"] < at < event["ts"] + event["dur"]
    )


def _ts(event: Event) -> float:
    return float(event.get("ts", 0))
