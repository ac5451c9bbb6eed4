"""From what torch exports to the trace that is kept: the clock, and ranges that are moved or added."""

import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from strobe.callbacks.ranges import Step
from strobe.callbacks.trace_writer import begin_steps, clock_of, fit_updates, keep_first_steps, name_fetches
from strobe.callbacks.tracefile import Trace, read_trace


def event(name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur} | more


def named(trace: Trace, name: str) -> list[tuple[float, float]]:
    return [(e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if e["name"] == name]


def test_the_clock_is_the_traces(tmp_path: Path) -> None:
    noted = []
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for number in range(50):
            before = time.monotonic_ns()
            with record_function(f"range {number}"):
                noted.append((before, time.monotonic_ns()))
                torch.ones(3)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = read_trace(tmp_path / "trace.json")
    clock = clock_of(trace)
    starts = [named(trace, f"range {number}")[0][0] for number in range(50)]
    agree = [clock(before) - 50 < ts < clock(after) + 50 for ts, (before, after) in zip(starts, noted, strict=True)]
    assert sum(agree) >= 45  # between two readings, and 50 us: a machine may stop in between


def test_a_step_begins_after_what_lies_before_it() -> None:
    copy = event("ProfilerStep#4", 1000, 9000, cat="gpu_user_annotation", tid=7)  # torch draws it last
    trace = {
        "traceEvents": [
            event("ProfilerStep#3", 0, 1000),
            event("ProfilerStep#4", 1000, 9000),
            event("validation", 1010, 4000),
            copy.copy(),
        ]
    }
    begin_steps(trace, [Step(3, 5_000, 0, ()), Step(4, 5_000_000, 0, ())], lambda ns: ns / 1000)
    assert named(trace, "ProfilerStep#3") == [(0, 1000)]  # began with its range, but for the clock's error
    assert named(trace, "ProfilerStep#4")[0] == (5010, 10000)  # behind the range that it would cut
    assert trace["traceEvents"][-1] == copy


def test_torchs_optimizer_range_fits_ours() -> None:
    trace = {
        "traceEvents": [
            event("optimizer", 0, 15),  # before the closure
            event("Optimizer.step#Adam.step", 10, 90),
            event("forward", 15, 35),
            event("backward", 50, 30),
            event("optimizer", 80, 15),
            event("Optimizer.step#Other.step", 300, 10),
        ]
    }
    fit_updates(trace)
    assert named(trace, "Optimizer.step#Adam.step") == [(80, 95)]
    assert named(trace, "Optimizer.step#Other.step") == [(300, 310)]


def test_a_fetch_without_a_waiting_range_gets_one() -> None:
    trace = {
        "traceEvents": [
            event("fetch", 0, 10),
            event("enumerate(DataLoader)#Iter.__next__", 1, 8),
            event("fetch", 20, 10),
        ]
    }
    name_fetches(trace)
    assert named(trace, "enumerate(DataLoader)#loader.__next__") == [(20, 30)]


def test_steps_are_left_out_with_what_is_in_them() -> None:
    events = [event(f"ProfilerStep#{n}", 10 * n, 10) for n in (5, 6, 7)]
    inside = [event("aten::mm", 10 * n + 1, 1, cat="cpu_op") for n in (5, 6, 7)]
    metadata = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}
    trace = {"traceEvents": [*inside, *events, metadata]}
    keep_first_steps(trace, 2)
    assert trace["traceEvents"] == [*inside[:2], *events[:2], metadata]
    keep_first_steps(trace, 2)
    assert len(trace["traceEvents"]) == 5
