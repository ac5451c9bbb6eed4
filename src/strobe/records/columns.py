"""A trace as columns: some bytes an event instead of a dictionary, so that millions of events fit into memory.

Categories and names of events are those of Kineto (pytorch/kineto, libkineto/src/output_json.cpp), also as torch 1.8
wrote them and as `callbacks.normalise` rewrites them.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strobe.callbacks.tracefile import Event, Scan, Trace, TraceError, args_of, without_gc

OPERATOR, CALL, KERNEL, COPY, SET, ANNOTATION, MARK, LOADER, PYTHON, MEMORY, STEP = range(11)  # kinds of events
KINDS = {
    **dict.fromkeys(("cpu_op", "operator"), OPERATOR),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime", "privateuse1_runtime"), CALL),
    "kernel": KERNEL,
    **dict.fromkeys(("gpu_memcpy", "memcpy"), COPY),
    **dict.fromkeys(("gpu_memset", "memset"), SET),
    "user_annotation": ANNOTATION,
    "gpu_user_annotation": MARK,
    "loader": LOADER,
    "python_function": PYTHON,
    "cpu_instant_event": MEMORY,
}
ON_DEVICE, ON_HOST = (KERNEL, COPY, SET), (OPERATOR, CALL, ANNOTATION, STEP)
NONE = -1  # an id that an event does not have
_STEP, _SHAPES = "ProfilerStep#", ("Input Dims", "Input dims")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass
class Names:
    """Texts by number, each kept once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> int:
        """The number of a text."""
        return self.numbers.setdefault(text, len(self.numbers))

    @cached_property
    def texts(self) -> list[str]:
        """All texts, once there are no more to come."""
        return list(self.numbers)


@dataclass
class Columns:
    """The ranges of a trace, in the order of the file, and its memory events, which have no length.

    ``start`` and ``length`` are microseconds, from the first event on; ``origin`` is that one's time in the file.
    ``name`` and ``shape`` are numbers in ``names``, ``track`` in ``tracks`` (process, thread or stream). ``device`` is
    -1 for memory of the host. ``call`` ties a call to what it started on a device. ``size`` are bytes of copies, and
    of memory that was taken or given back; ``extra`` is a kernel's estimated occupancy in percent, or the bytes held
    after a memory event.
    ``fault``: why the file could not be read to its end.
    """

    path: Path
    said: Trace
    origin: float
    names: Names
    tracks: Sequence[tuple[str, str]]
    processes: Mapping[str, str]
    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    start: Floats
    length: Floats
    track: NDArray[np.int32]
    call: Ints
    device: NDArray[np.int16]
    shape: NDArray[np.int32]
    size: Floats
    extra: Floats
    fault: str = ""

    def of(self, *kinds: int) -> Ints:
        """The places of events of these kinds, in the order of time."""
        places = np.flatnonzero(np.isin(self.kind, kinds))
        return places[np.argsort(self.start[places], kind="stable")]

    @cached_property
    def end(self) -> Floats:
        """When each event ends."""
        return self.start + self.length

    @property
    def rank(self) -> int | None:
        """The rank that the trace says it is of."""
        ranks = self.said.get("distributedInfo")
        rank = str(ranks.get("rank")) if isinstance(ranks, dict) else ""
        return int(rank) if rank.isdecimal() else None

    def matching(self, test: Callable[[str], object]) -> Mask:
        """Which numbers of names pass a test of the text."""
        return np.fromiter((bool(test(text)) for text in self.names.texts), bool, len(self.names.texts))


def read_columns(path: str | Path) -> Columns:
    """The columns of a trace file, as far as it can be read.

    Raises:
        TraceError: It holds no range at all.
    """
    scan = Scan(path)
    with without_gc():
        columns = columns_of(scan, Path(path), scan.said)
    if not len(columns.start):
        why = f"; it {scan.fault}" if scan.fault else ""
        raise TraceError(f"{path} holds no trace events{why}; name a .json or .json.gz trace that torch.profiler wrote")
    columns.fault = scan.fault
    return columns


def columns_of(events: Iterable[Event], path: Path, said: Trace) -> Columns:
    """The columns of events, which are read once."""
    kinds, names_, tracks_, shapes, devices = array("b"), array("i"), array("i"), array("i"), array("h")
    starts, lengths, sizes, extras, calls = array("d"), array("d"), array("d"), array("d"), array("q")
    names, tracks, processes = Names(), dict[tuple[str, str], int](), dict[str, str]()
    kind_of: dict[str, int] = {}
    track_of: dict[tuple[Any, Any], int] = {}
    for event in events:
        phase, category = event.get("ph"), str(event.get("cat"))
        kind = kind_of.get(category)
        if kind is None:
            kind = kind_of[category] = KINDS.get(category.lower(), NONE)
        args = args_of(event)
        if kind == NONE or (phase != "X" and kind != MEMORY):
            if phase == "M" and event.get("name") == "process_name":
                processes[str(event.get("pid"))] = str(args.get("name"))
            continue
        name: Any = event.get("name")
        start: Any = event.get("ts")
        length: Any = event.get("dur", 0.0)
        place = event.get("pid"), event.get("tid")
        try:
            if kind == ANNOTATION and name.startswith(_STEP):
                kind = STEP
            track = track_of.get(place)
            if track is None:
                track = track_of[place] = tracks.setdefault((str(place[0]), str(place[1])), len(tracks))
            starts.append(start)
            lengths.append(length)
        except (TypeError, ValueError, AttributeError):  # no times, or no name
            del starts[len(lengths) :]
            continue
        shape = args.get(_SHAPES[0]) or args.get(_SHAPES[1]) if kind == OPERATOR else None
        memory = kind == MEMORY
        number, device = args.get("correlation", NONE), args.get("Device Id" if memory else "device", 0)
        kinds.append(kind)
        names_.append(names(str(name)))
        tracks_.append(track)
        shapes.append(names(str(shape)) if shape else NONE)
        calls.append(number if isinstance(number, int) and abs(number) < 1 << 62 else NONE)
        devices.append(device if isinstance(device, int) and -1 <= device < 1 << 15 else 0)
        sizes.append(_number(args.get("Bytes" if memory else "bytes")))
        extras.append(_number(args.get("Total Allocated" if memory else "est. achieved occupancy %")))

    def held(of: "array[Any]") -> NDArray[Any]:
        return np.frombuffer(of, of.typecode) if of else np.empty(0, of.typecode)

    start_, length_ = held(starts), held(lengths)
    known = np.isfinite(start_) & np.isfinite(length_)
    origin = float(start_[known].min()) if known.any() else 0.0
    parts = (kinds, names_, starts, lengths, tracks_, calls, devices, shapes, sizes, extras)
    columns: list[Any] = [held(part)[known] for part in parts]
    columns[2] = columns[2] - origin
    return Columns(path, said, origin, names, list(tracks), processes, *columns)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
