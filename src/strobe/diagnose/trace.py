"""What torch.profiler's traces show: how busy the GPU and the loaders were, and who waited for whom.

Categories and names of events are those of Kineto (pytorch/kineto, libkineto/src/output_json.cpp), also as torch 1.8
wrote them and as `callbacks.normalise` rewrites them. Their times are microseconds; the evidence is in seconds.
"""

import logging
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from strobe.callbacks.tracefile import (
    Event,
    Trace,
    TraceError,
    args_of,
    category_of,
    end_of,
    is_range,
    name_of,
    number_of,
    outer_first,
    read_trace,
    start_of,
    without_gc,
)
from strobe.records.places import fault_of

NEWEST = 3  # traces that are read of a run
MOST_BYTES = 100_000_000  # of their text: some seconds, and 1 GB of memory

_log = logging.getLogger(__name__)
_KINDS = {
    **dict.fromkeys(("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"), "device"),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime"), "call"),
    **dict.fromkeys(("cpu_op", "operator"), "operator"),
    "user_annotation": "annotation",
    "loader": "loader",
}
_COPY = re.compile(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?")
# As in torch-tb-profiler 0.4.3 (its profiler/tensor_core.py), and later kernels of CUTLASS, cuDNN and cuBLAS.
_TENSOR_CORES = re.compile(
    r"[hs]884|[hsc]1688|i8816|16816|hmma|dgrad_1x1_stride_2x2|first_layer_wgrad_kernel|conv1x1|conv2d_c1_k1"
    r"|direct_group|xmma_(?!.*ffma)|tensorop|tensor_op|imma|wmma|gmma|i16832|nvjet"
)
_WORKER = re.compile(r"loader (?:in the )?(worker \d+|process \d+|training process)")
WAITS = re.compile(
    r"(cuda|hip)(Stream|Device|Event)Synchronize|cu(Stream|Ctx|Event)Synchronize|(cuda|hip)Memcpy(2D|3D|WithStream)?"
)
BLOCKING = "DtoH pageable"  # such a copy waits for the GPU, though its call is named asynchronous

Thread = tuple[str, str]  # process, thread
TimeRange = tuple[float, float]  # start and end


@dataclass
class _Sums:
    """Of the steps of all traces; times in microseconds."""

    steps: int = 0
    length: float = 0.0
    busy: float | None = None
    kernels: list[float] = field(default_factory=list)
    tensor_cores: float = 0.0
    waiting: float = 0.0
    waits: dict[tuple[str, str | None], list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0]))
    copies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0, 0]))
    loaders: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def read_evidence(paths: Sequence[Path]) -> dict[str, Any] | None:
    """The ``trace_evidence`` of a run's newest traces; None if none of them holds a step.

    At most ``NEWEST`` traces with together ``MOST_BYTES`` are read. One that is larger by itself, or that cannot be
    read, is left out with a warning.
    """
    sums, left = _Sums(), MOST_BYTES
    for path in sorted(paths, key=_written, reverse=True)[:NEWEST]:
        try:
            size = text_bytes(path)
            if size <= left:
                with without_gc():
                    _add(read_trace(path), sums)
                left -= size
            elif size > MOST_BYTES:
                told = f"{path} is too large to look for causes in it; set profiler.max_mb"
                _log.warning("%s", fault_of(path) or told)  # the size that a cut file tells is none
        except (OSError, TraceError) as error:
            _log.warning("A trace could not be searched for causes: %s", error)
    return _evidence(sums)


def trace_evidence(*traces: Trace) -> dict[str, Any] | None:
    """What the steps (`ProfilerStep#` ranges) of traces tell together; None without any step.

    Returns:
        - `steps`, and their mean `step_seconds`, which recording has made longer.
        - `device_busy`: the share of that in which the busiest GPU had a kernel, copy or memset in work. None without
          a GPU, as are the other figures of kernels.
        - `syncs`: in which operator's `name` (or that of the call, outside of all) and in which `phase` the host
          waited for the GPU: `seconds` and `calls` a step, longest first. `sync_seconds`: a step, all of them.
        - `kernels_per_step`, `kernel_seconds_median`, and `tensor_core_share` of the kernels' time.
        - `copies`: `kind`, such as "HtoD pageable", and `seconds`, `bytes` and `calls` a step, longest first.
        - `loader_workers`: the share of the steps' time in which each had a training batch in work.
    """
    sums = _Sums()
    for trace in traces:
        _add(trace, sums)
    return _evidence(sums)


def _evidence(sums: _Sums) -> dict[str, Any] | None:
    if not sums.length:
        return None
    steps, gpu, work = sums.steps, sums.busy is not None, sum(sums.kernels)
    waits = sorted(sums.waits.items(), key=lambda item: -item[1][0])
    copies = sorted(sums.copies.items(), key=lambda item: -item[1][0])
    return {
        "steps": steps,
        "step_seconds": sums.length / steps / 1e6,
        "device_busy": None if sums.busy is None else sums.busy / sums.length,
        "syncs": [
            {"name": name, "phase": phase, "seconds": time / steps / 1e6, "calls": calls / steps}
            for (name, phase), (time, calls) in waits
        ],
        "sync_seconds": sums.waiting / steps / 1e6 if gpu else None,
        "kernels_per_step": len(sums.kernels) / steps if gpu else None,
        "kernel_seconds_median": median(sums.kernels) / 1e6 if sums.kernels else None,
        "tensor_core_share": sums.tensor_cores / work if work else None,
        "copies": [
            {"kind": kind, "seconds": time / steps / 1e6, "bytes": size / steps, "calls": calls / steps}
            for kind, (time, size, calls) in copies
        ],
        "loader_workers": {name: busy / sums.length for name, busy in sorted(sums.loaders.items())},
    }


def _add(trace: Trace, sums: _Sums) -> None:
    found: dict[str, list[Event]] = defaultdict(list)
    processes: dict[str, str] = {}
    for event in trace["traceEvents"]:
        kind = _KINDS.get(category_of(event))
        if kind is not None and is_range(event):
            found[kind].append(event)
        elif event.get("name") == "process_name":
            processes[str(event.get("pid"))] = str(args_of(event).get("name"))
    found["step"] = [event for event in found["annotation"] if name_of(event).startswith("ProfilerStep#")]
    windows = _union((start_of(step), end_of(step)) for step in found["step"])
    sums.steps += len(found["step"])
    sums.length += sum(end - start for start, end in windows)
    if windows and found["device"]:
        copies = _add_device(found["device"], found["call"], windows, sums)
        _add_waits(found, copies, windows, sums)
    batches: dict[str, list[TimeRange]] = defaultdict(list)
    for event in found["loader"]:
        if name_of(event) == "batch" and (title := _WORKER.match(processes.get(str(event.get("pid")), ""))):
            batches[title[1]].append((start_of(event), end_of(event)))
    for name, spans in batches.items():
        sums.loaders[name] += _covered(spans, windows)


def _add_device(
    events: Sequence[Event], calls: Sequence[Event], windows: list[TimeRange], sums: _Sums
) -> dict[Any, str]:
    """Add how busy GPUs were within the steps, and the work that steps gave them, however late it was done.

    Returns:
        The kind of each copy by its correlation number.
    """
    begins = {number_of(call, "correlation"): start_of(call) for call in calls}
    devices: dict[Any, list[TimeRange]] = defaultdict(list)
    kinds: dict[Any, str] = {}
    for event in events:
        devices[number_of(event, "device")].append((start_of(event), end_of(event)))
        number, category, name = number_of(event, "correlation"), category_of(event), name_of(event)
        if is_copy := category.endswith("memcpy"):
            kinds[number] = kind_of_copy(name)
        if not _inside(begins.get(number, start_of(event)), windows):
            continue
        if is_copy:
            size = number_of(event, "bytes")
            sum_of_kind = sums.copies[kinds[number]]
            for place, value in enumerate((event["dur"], size if isinstance(size, int) else 0, 1)):
                sum_of_kind[place] += value
        elif category == "kernel":
            sums.kernels.append(event["dur"])
            sums.tensor_cores += event["dur"] if uses_tensor_cores(name) else 0
    sums.busy = (sums.busy or 0.0) + max(_covered(work, windows) for work in devices.values())
    return kinds


def _add_waits(found: dict[str, list[Event]], copies: dict[Any, str], windows: list[TimeRange], sums: _Sums) -> None:
    calls = [call for call in found["call"] if _inside(start_of(call), windows)]
    waits = _find_waits(calls, found["operator"], found["annotation"], _thread(found["step"][0]), copies)
    counted: set[int] = set()
    for call, caller, phase in waits:
        total = sums.waits[name_of(caller), phase]
        total[0] += call["dur"]
        total[1] += id(caller) not in counted  # a copy and the wait for it are one
        counted.add(id(caller))
    sums.waiting += _covered([(start_of(call), end_of(call)) for call, _, _ in waits], windows)


def _find_waits(
    calls: Iterable[Event],
    operators: Iterable[Event],
    annotations: Sequence[Event],
    main: Thread,
    copies: Mapping[Any, str],
) -> list[tuple[Event, Event, str | None]]:
    """The calls in which the training thread ``main`` waits for the GPU, or autograd's threads, which work for it.

    Each comes with its caller (:func:`_callers`) and its phase, the outermost annotation of ``main`` around it.
    ``copies`` gives the kind of each copy by its correlation number.
    """
    ranges: dict[Thread, list[Event]] = {main: []}
    others: dict[Thread, list[Event]] = defaultdict(list)
    for event in operators:
        thread = _thread(event)
        if thread in ranges:
            ranges[thread].append(event)
        else:
            others[thread].append(event)
            if thread[0] == main[0] and name_of(event).startswith("autograd::engine::"):
                ranges[thread] = others.pop(thread)
    found: dict[Thread, list[Event]] = defaultdict(list)
    for call in calls:
        if WAITS.fullmatch(name_of(call)) or copies.get(number_of(call, "correlation")) == BLOCKING:
            found[_thread(call)].append(call)
    phases: list[Event] = []
    for event in sorted((event for event in annotations if _thread(event) == main), key=outer_first):
        if not name_of(event).startswith("ProfilerStep#") and (not phases or start_of(event) >= end_of(phases[-1])):
            phases.append(event)
    begins = [start_of(phase) for phase in phases]
    waits = []
    for thread in found.keys() & ranges.keys():
        for call, caller in _callers(found[thread], ranges[thread]):
            place = bisect_right(begins, start_of(call)) - 1
            inside = place >= 0 and start_of(call) < end_of(phases[place])
            waits.append((call, caller, name_of(phases[place]) if inside else None))
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


def _thread(event: Event) -> Thread:
    return str(event.get("pid")), str(event.get("tid"))


@cache
def uses_tensor_cores(kernel: str) -> bool:
    """Whether a kernel's name is one of those that compute on tensor cores."""
    return _TENSOR_CORES.search(kernel) is not None


def kind_of_copy(name: str) -> str:
    """Such as "HtoD pinned"; the direction alone where the host's memory is not told."""
    match = _COPY.match(name)
    if match is None:
        return name
    memory = {str(place).lower() for place in match.groups()[1:]} & {"pageable", "pinned"}
    return " ".join([match[1], *sorted(memory)])


def _union(ranges: Iterable[TimeRange]) -> list[TimeRange]:
    """The union of intervals, in order and disjoint."""
    merged: list[TimeRange] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _covered(ranges: Iterable[TimeRange], windows: list[TimeRange]) -> float:
    """How much of the windows the intervals cover; the windows are in order and disjoint."""
    total, first = 0.0, 0
    for start, end in _union(ranges):
        while first < len(windows) and windows[first][1] <= start:
            first += 1
        place = first
        while place < len(windows) and windows[place][0] < end:
            total += min(end, windows[place][1]) - max(start, windows[place][0])
            place += 1
    return total


def _inside(time: float, windows: list[TimeRange]) -> bool:
    """Whether a time lies in one of the windows, which are in order and disjoint."""
    place = bisect_right(windows, time, key=itemgetter(0)) - 1
    return place >= 0 and time < windows[place][1]


def _written(path: Path) -> int:
    """When a trace was written, in nanoseconds: from its name, `<worker>.<ns>.pt.trace.json`, or else its file."""
    match = re.search(r"\.(\d{15,})\.", path.name)
    if match:
        return int(match[1])
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def text_bytes(path: Path) -> int:
    """A trace's size when unpacked, from gzip's last four bytes (RFC 1952, 2.3.1)."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        size = file.seek(0, 2)
        if packed and size >= 4:
            file.seek(-4, 2)
            return max(size, int.from_bytes(file.read(4), "little"))
    return size
