"""Turns torch.profiler's export into the final trace: whole steps, waiting for any engine, loaders, limited size."""

import errno
import gzip
import json
import logging
import os
import re
import socket
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .loading import Loading
from .normalise import normalise
from .ranges import Step
from .tracefile import (
    Event,
    Trace,
    TraceError,
    category_of,
    end_of,
    is_range,
    name_of,
    read_trace,
    start_of,
    without_gc,
    write_trace,
)

Clock = Callable[[int], float]
SLACK_US = 100  # a step that begins so soon after its range does has nothing in between
MANY = 50  # steps, which take seconds to write
COSTLY = ("with_stack", "profile_memory", "with_flops", "record_shapes")
MARGIN = 0.9  # steps differ; what still comes out too large is cut
_log = logging.getLogger(__name__)
_TRACE = re.compile(r".+_rank(?P<rank>\d+)(_partial)?\.(?P<ns>\d+)\.pt\.trace\.json(\.gz)?")


class Budget:
    """A limit on the size of a trace, if any, and how many active steps and which options fit it."""

    def __init__(self, max_bytes: float | None, active: int) -> None:
        self.max_bytes = max_bytes
        self.wanted = active
        self.active = active
        self._estimated = False

    @property
    def wants_probe(self) -> bool:
        """Whether a step's size is still unknown."""
        return self.max_bytes is not None and not self._estimated

    def learn(self, step_bytes: float, options: Mapping[str, bool]) -> dict[str, bool]:
        """The options to record with, by the size of a recorded step: the costly ones off if not even one step fits."""
        if self.max_bytes is None or step_bytes <= 0:
            return dict(options)
        self._estimated = True
        fitting = int(MARGIN * self.max_bytes / step_bytes)
        before, self.active = self.active, max(1, min(self.wanted, fitting))
        limit, size = f"max_mb={self.max_bytes / 1e6:g}", f"{step_bytes / 1e6:.3g} MB a step"
        costly = [name for name in COSTLY if options.get(name)]
        if fitting < 1 and costly:
            _log.warning("%s: traces take %s, so one step is recorded without %s", limit, size, ", ".join(costly))
            return {**options, **dict.fromkeys(costly, False)}
        if self.active != before:
            _log.warning("%s: traces take %s, so %d of %d steps are recorded", limit, size, self.active, self.wanted)
        return dict(options)

    def excess(self, size: int, steps: int) -> int | None:
        """How many of a trace's steps fit, if its file of `size` bytes is too large; else None."""
        if self.max_bytes is None or size <= self.max_bytes or steps <= 1:
            return None
        return max(1, min(steps - 1, int(steps * MARGIN * self.max_bytes / size)))


@dataclass
class TraceWriter:
    """Writes `<worker>.<ns>.pt.trace.json.gz`, or `<worker>_partial...` for a cycle that did not finish."""

    directory: Path
    traces: list[Path]  # to which those written are added
    budget: Budget
    rank: int = 0
    keep: int | None = None  # the newest traces of this rank; None for all

    def write(self, profiler: Any, steps: Sequence[Step], loading: Loading, *, whole: bool, drop: str | None) -> None:
        """Write a trace, whole or not at all, without the range called `drop`; logs a warning if that fails."""
        worker = f"{socket.gethostname()}_{os.getpid()}_rank{self.rank}"  # as the plugin calls it
        path = self.directory / f"{worker}{'' if whole else '_partial'}.{time.time_ns()}.pt.trace.json.gz"
        if len(steps) >= MANY:
            _log.info("Writing a trace of %d steps; training waits for it", len(steps))
        try:
            with without_gc():
                with self._exported(profiler) as plain:
                    trace = read_trace(plain)
                trace["traceName"] = path.name
                trace["traceEvents"] = [e for e in trace["traceEvents"] if drop is None or e.get("name") != drop]
                clock = clock_of(trace)
                begin_steps(trace, steps, clock)
                name_process(trace, os.getpid(), f"training, rank {self.rank}")
                fit_updates(trace)
                name_fetches(trace)
                trace["traceEvents"] += loading.events(clock, steps[0].start, steps[-1].end)
                normalise(trace)
                write_trace(path, trace)
                self._fit(path, trace, len(steps))
                self.traces.append(path)
                if self.keep is not None:
                    prune(self.directory, self.rank, self.keep)
                    self.traces[:] = [kept for kept in self.traces if kept.exists()]
        except OSError as error:
            _log.warning("No trace could be written to %s (%s); is there space?", path, error.strerror)
        except TraceError as error:
            _log.warning("No trace could be written to %s: %s", path, error)

    def weigh(self, profiler: Any) -> int:
        """About how many bytes the recording takes in a file."""
        with self._exported(profiler) as plain:
            return len(gzip.compress(plain.read_bytes(), compresslevel=6))

    @contextmanager
    def _exported(self, profiler: Any) -> Iterator[Path]:
        """The recording as torch writes it, on the disk of traces unless its path would have to be escaped in JSON.

        For torch writes the path into the file as it is.
        """
        beside = str(self.directory.absolute())
        plain = json.dumps(beside) == f'"{beside}"'
        with TemporaryDirectory(prefix=".trace-", dir=beside if plain else None) as scratch:
            path = Path(scratch, "trace.json")
            profiler.export_chrome_trace(str(path))
            if not path.exists():  # torch only prints why
                raise OSError(errno.EIO, "torch.profiler exported nothing")
            yield path

    def _fit(self, path: Path, trace: Trace, steps: int) -> None:
        """Shorten a file that is larger than allowed, and remember the size of a step."""
        size, left = path.stat().st_size, steps
        while (fitting := self.budget.excess(path.stat().st_size, left)) is not None:
            self.budget.active = left = fitting
            keep_first_steps(trace, left)
            write_trace(path, trace)
        if left < steps:
            _log.warning("%s took %.3g MB; its last %d steps were left out", path.name, size / 1e6, steps - left)
        if self.budget.max_bytes and (size := path.stat().st_size) > self.budget.max_bytes:
            limit = f"max_mb={self.budget.max_bytes / 1e6:g}"
            _log.warning("%s: %s takes %.3g MB with a single step; allow at least that", limit, path.name, size / 1e6)


def prune(directory: Path, rank: int, keep: int) -> None:
    """Remove all but the newest `keep` traces of a rank, including those of earlier runs in this folder."""
    traces = [(match, path) for path in directory.iterdir() if (match := _TRACE.fullmatch(path.name))]
    of_rank = [(int(match["ns"]), path) for match, path in traces if int(match["rank"]) == rank]
    for _, path in sorted(of_rank)[:-keep]:
        path.unlink(missing_ok=True)


def clock_of(trace: Trace) -> Clock:
    """From `time.monotonic_ns` to the trace's `ts`, microseconds of the wall clock since its base, within a few."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(20)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])
    offset = wall - (before + after) // 2 - int(trace.get("baseTimeNanoseconds", 0))
    return lambda monotonic: (monotonic + offset) / 1e3


def name_process(trace: Trace, pid: int, name: str) -> None:
    """Name a process by its role in the run, and its main thread too (whose number on Linux is the process's)."""
    for event in trace["traceEvents"]:
        if event.get("ph") == "M" and event.get("pid") == pid:
            if event["name"] == "process_name":
                event["args"] = {"name": name}
            elif event["name"] == "thread_name" and event["tid"] == pid:
                event["args"] = {"name": "main thread"}


def begin_steps(trace: Trace, steps: Sequence[Step], clock: Clock) -> None:
    """Let each ProfilerStep range begin with its step.

    torch.profiler begins a step where the previous one ended, but a validation or the end of an epoch in between
    belongs to neither.
    """
    ranges = {event["name"]: event for event in trace["traceEvents"] if _is_step(event)}
    for step in steps:
        event, start = ranges.get(f"ProfilerStep#{step.number}"), clock(step.start)
        if event is None or start - event["ts"] < SLACK_US:
            continue
        kinds = ("cpu_op", "user_annotation")  # a Python frame may be cut
        others = [e for e in trace["traceEvents"] if e.get("tid") == event["tid"] and category_of(e) in kinds]
        start = max([start, *(end_of(e) for e in others if not _is_step(e) and e["ts"] < start < end_of(e))])
        _narrow(event, start, end_of(event))


def fit_updates(trace: Trace) -> None:
    """Let torch's `Optimizer.step#...`, which holds its closure too, lie in the last `optimizer` range it overlaps."""
    updates = sorted((e for e in trace["traceEvents"] if is_range(e) and name_of(e) == "optimizer"), key=start_of)
    for event in trace["traceEvents"]:
        if not is_range(event) or not name_of(event).startswith("Optimizer.step#"):
            continue
        place = bisect_left(updates, end_of(event), key=start_of) - 1
        if place >= 0 and updates[place].get("tid") == event.get("tid"):
            _narrow(event, max(event["ts"], updates[place]["ts"]), min(end_of(event), end_of(updates[place])))


def name_fetches(trace: Trace) -> None:
    """Add the range that the plugin counts as waiting for data to each `fetch`; only torch's DataLoader writes it."""
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


def _narrow(event: Event, start: float, end: float) -> None:
    if start < end:
        event["ts"], event["dur"] = start, end - start
