"""Traces read back from their files, for the tests of the profiler."""

import re
from pathlib import Path

from strobe.callbacks.trace import TraceProfiler
from strobe.callbacks.tracefile import Event, read_trace

TWO = {"wait": 1, "warmup": 1, "active": 2}


def read(path: Path) -> tuple[list[Event], list[Event]]:
    """The trace's steps in order, and its other ranges on the CPU."""
    events = [event for event in read_trace(path)["traceEvents"] if event["ph"] == "X"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    ranges = [event for event in events if event["cat"] in {"cpu_op", "user_annotation"} and event not in steps]
    return sorted(steps, key=lambda step: step["ts"]), ranges


def ends(event: Event) -> float:
    return event["ts"] + event["dur"]


def in_steps(path: Path, pattern: str) -> list[list[str]]:
    """Names of the ranges that match, for each step that holds them whole."""
    steps, ranges = read(path)
    matches = [event for event in ranges if re.fullmatch(pattern, event["name"])]
    return [[e["name"] for e in matches if step["ts"] <= e["ts"] <= ends(e) <= ends(step)] for step in steps]


def numbers(path: Path) -> list[int]:
    """The numbers of the trace's steps, after checking that each holds its own batch and cuts no range."""
    steps, ranges = read(path)
    edges = [edge for step in steps for edge in (step["ts"], ends(step))]
    assert edges == sorted(edges)
    assert not [event for event in ranges for edge in edges if event["ts"] < edge < ends(event)]
    found = [int(step["name"].removeprefix("ProfilerStep#")) for step in steps]
    assert in_steps(path, r"batch \d+") == [[f"batch {number}"] for number in found]
    return found


def written(profiler: TraceProfiler) -> list[list[int]]:
    """The step numbers of each trace, after checking that the directory holds nothing else."""
    assert set(profiler.directory.iterdir()) == set(profiler.traces)
    return [numbers(path) for path in profiler.traces]
