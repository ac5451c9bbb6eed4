"""Rewrite traces so that TensorBoard's profiler plugin, Perfetto and Holistic Trace Analysis agree on them.

`python -m strobe.callbacks.normalise TRACE...` does it to files. What current torch writes and torch-tb-profiler 0.4.3
(its `profiler/trace.py`, `event_parser.py` and `node.py`) misreads:

- It drops `user_annotation` ranges, as which torch marks waiting for a DataLoader and an optimizer's step.
- It knows CUDA calls as `runtime`, no longer what they are called, and so ties no kernel to its operator.
- It ties a call by its `External id`, which some versions fill with the call's own number. It prefers the key
  `external id`, which nobody else reads: the right number is put there, and the old one stays.
- It counts the copy of a step that torch draws on the GPU's tracks as another step; so does HTA 0.5.
- As anyone would, it takes forward and backward for a part of the optimizer's step when a closure ran them there.
"""

import argparse
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .tracefile import (
    Event,
    Trace,
    TraceError,
    all_read,
    args_of,
    category_of,
    end_of,
    is_range,
    name_of,
    number_of,
    outer_first,
    read_trace,
    start_of,
    write_trace,
)

_CUDA_CALLS = {"cuda_runtime", "cuda_driver"}
_ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
_OPERATORS = {"cpu_op", "operator"}
_ON_CPU = {*_OPERATORS, "user_annotation", "python_function", "runtime"}
_COLLECTIVES = ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
_KEPT = {f"{library}:{name}" for library in ("nccl", "gloo") for name in _COLLECTIVES}  # annotations the plugin reads
_RESOLUTION = 1e-3  # microseconds: torch writes times to the nanosecond


def normalise(trace: Trace) -> Counter[str]:
    """Rewrite a trace in place so that all readers agree; returns how many events were changed, by kind of change.

    A second time changes nothing, and returns an empty counter.

    An optimizer's step that ran forward and backward in its closure begins after them; it stays whole where a
    recorded Python frame reaches over both, as ranges of a thread must not cross. Times are microseconds.

    HTA finds steps, operators, kernels and their ties as before. What of it asks for the category `cuda_runtime` by
    name (critical path, CUPTI counters, launch filters of call stacks) needs the original file.
    """
    count: Counter[str] = Counter()
    tracks: dict[tuple[Any, Any], list[Event]] = defaultdict(list)  # by process and thread
    on_device: list[Event] = []
    for event in trace["traceEvents"]:
        if not is_range(event):
            continue
        if change := _rename(event):
            count[change] += 1
        category = category_of(event)
        if category in _ON_CPU:
            tracks[str(event.get("pid")), str(event.get("tid"))].append(event)
        elif category in _ON_DEVICE:
            on_device.append(event)
    for ranges in tracks.values():
        ranges.sort(key=outer_first)
    count["optimizer steps shortened"] = _shorten_optimizer_steps(tracks)
    owners = {_id(event): event for ranges in tracks.values() for event in ranges if _owns_calls(event)}
    ids: dict[Any, Any] = {}
    for ranges in tracks.values():
        count["cuda calls tied to operators"] += _tie_calls(ranges, owners, ids)
    for event in on_device:
        number = number_of(event, "correlation")
        if number in ids and _id(event) != ids[number]:
            _set_id(event, ids[number])
            count["kernels tied to operators"] += 1
    return +count


def _rename(event: Event) -> str | None:
    """Give an event the category or name that the plugin needs; returns what was done."""
    category, name = category_of(event), name_of(event)
    if category in _CUDA_CALLS:
        event["cat"] = "runtime"
        return "cuda calls made runtime"
    if category == "gpu_user_annotation" and name.startswith("ProfilerStep#"):
        event["name"] = f"GPU {name}"
        return "gpu steps renamed"
    if category == "user_annotation" and name.startswith(("enumerate(DataLoader)#", "enumerate(DataPipe)#")):
        event["cat"] = "cpu_op"
        return "loader waits made operators"
    if category == "user_annotation" and name.startswith(("Optimizer.step", "Optimizer.zero_grad")):
        event["cat"] = "cpu_op"
        return "optimizer ranges made operators"
    return None


def _shorten_optimizer_steps(tracks: Mapping[tuple[Any, Any], list[Event]]) -> int:
    """Start each optimizer's step after the passes that its closure ran; returns how many were changed."""
    backward: dict[Any, list[Any]] = defaultdict(list)  # ends by process: autograd has threads of its own
    for (process, _), ranges in tracks.items():
        backward[process] += [end_of(e) for e in ranges if name_of(e).startswith("autograd::engine::evaluate_function")]
    shortened = 0
    for (process, _), ranges in tracks.items():
        steps = [event for event in ranges if name_of(event).startswith("Optimizer.step")]
        phases = [event for event in ranges if steps and category_of(event) == "user_annotation"]
        passes = [end_of(event) for event in phases if event.get("name") in {"forward", "backward"}]
        ends = sorted(backward[process] + passes) if steps else []
        updates = [event for event in phases if event.get("name") == "optimizer"]
        for step in steps:
            begin = _uncrossed(step, _update_begins(step, ends, updates), ranges)
            if begin > step["ts"] + _RESOLUTION:
                step["dur"], step["ts"] = round(end_of(step) - begin, 3), begin
                shortened += 1
        ranges.sort(key=outer_first)
    return shortened


def _update_begins(step: Event, ends: list[Any], updates: list[Event]) -> Any:
    """When an optimizer's own work begins: after the last pass within its step, or with its `optimizer` range."""
    place = bisect_right(ends, end_of(step) + _RESOLUTION)
    inside = place > 0 and ends[place - 1] > step["ts"] + _RESOLUTION
    begin = round(ends[place - 1], 3) if inside else step["ts"]
    place = bisect_left(updates, end_of(step), key=start_of)
    if place > 0 and (inside or end_of(updates[place - 1]) > end_of(step) + _RESOLUTION):
        begin = max(begin, updates[place - 1]["ts"])
    return begin


def _uncrossed(step: Event, begin: Any, ranges: list[Event]) -> Any:
    """`begin`, or the end of a range that it would cut; the step's own start where too little would be left."""
    end = end_of(step)
    for place in range(bisect_left(ranges, step["ts"], key=start_of), len(ranges)):
        event = ranges[place]
        if event["ts"] >= begin - _RESOLUTION:
            break
        around = event is step or (event["ts"] <= step["ts"] and end_of(event) >= end)
        if not around and end_of(event) > begin + _RESOLUTION:
            if category_of(event) == "python_function" or end_of(event) >= end - _RESOLUTION:
                return step["ts"]
            begin = end_of(event)
    return begin


def _tie_calls(ranges: list[Event], owners: Mapping[Any, Event], ids: dict[Any, Any]) -> int:
    """Give each CUDA call of a thread the id of the innermost operator around it, unless its own is good.

    `owners` are all operators by id; `ids` is filled with each call's id, by its correlation number.
    """
    around: list[Event] = []
    tied = 0
    for event in ranges:
        while around and end_of(around[-1]) <= event["ts"]:
            around.pop()
        if category_of(event) == "runtime":
            current = _id(event)
            if not _owns(owners.get(current), event):
                right = _id(around[-1]) if around else 0  # 0 is for the plugin a call outside all operators
                if right != current:
                    _set_id(event, current := right)
                    tied += 1
            ids[number_of(event, "correlation")] = current
        elif _owns_calls(event):
            around.append(event)
    return tied


def _owns(owner: Event | None, call: Event) -> bool:
    if owner is None or owner.get("pid") != call.get("pid"):
        return False
    if owner.get("tid") != call.get("tid") and _id(call) == number_of(call, "correlation"):
        return False  # the call's own number, which happens to be an operator's
    return bool(owner["ts"] <= end_of(call) and call["ts"] <= end_of(owner))


def _owns_calls(event: Event) -> bool:
    """Whether the plugin ties CUDA calls to this range."""
    named = event.get("name") in _KEPT or name_of(event).startswith("ProfilerStep#")
    category = category_of(event)
    return bool(_id(event)) and (category in _OPERATORS or (category == "user_annotation" and named))


def _id(event: Event) -> Any:
    """The operator that the plugin takes an event for, or ties a call to."""
    number = number_of(event, "external id")
    return number_of(event, "External id") if number is None else number


def _set_id(event: Event, operator: Any) -> None:
    event["args"] = {**args_of(event), "external id": operator}


def main(argv: Sequence[str] | None = None) -> int:
    """Normalise files, in place or as copies; returns 1 if any could not be done, which stays as it was, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m strobe.callbacks.normalise", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a .json or .json.gz trace")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write copies here instead")
    options = parser.parse_args(argv)
    names = {path.name for path in options.traces}
    if options.output is not None and (options.output.is_file() or len(names) < len(options.traces)):
        parser.error(f"--output {options.output} must be a folder, and no two of the traces may have one name")
    code = 0
    for path in options.traces:
        target = path if options.output is None else options.output / path.name
        try:
            trace = read_trace(path)
            usual = all_read(path)
            changes = normalise(trace)
            target.parent.mkdir(parents=True, exist_ok=True)
            if changes or target != path or not usual:
                write_trace(target, trace)
        except TraceError as error:
            print(error, file=sys.stderr)
            code = 1
        except OSError as error:
            print(f"{target} cannot be written ({error.strerror}); check space and permissions", file=sys.stderr)
            code = 1
        else:
            done = ", ".join(f"{number} {what}" for what, number in changes.items())
            form = "nothing had to be changed" if usual else "put into the form that all readers take"
            print(f"{target}: {done or form}")
    return code


if __name__ == "__main__":
    sys.exit(main())
