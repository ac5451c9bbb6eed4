"""One trace: its steps, where they go, and why the device idles. Times are microseconds, as in the file."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from strobe.records.columns import (
    ANNOTATION,
    CALL,
    COPY,
    KERNEL,
    LOADER,
    MEMORY,
    NONE,
    ON_DEVICE,
    ON_HOST,
    OPERATOR,
    STEP,
    Columns,
    Floats,
    Ints,
    Mask,
    read_columns,
)
from strobe.traces.cover import NOTHING, Cover, cover

COMMUNICATION = re.compile(
    r"(nccl|rccl|hccl|gloo|ucc|mpi|xccl|c10d)(::|:|Dev|Kernel|_|$)|^ncclKernel|all_?reduce|allgather", re.I
)
# Phases by the ranges that programs open: torch's, both Lightnings', Strobe's, and the plain words.
PHASES: Mapping[str, re.Pattern[str]] = {
    "data_wait": re.compile(r"enumerate\(Data(Loader|Pipe)\)#|fetch$|.*dataloader_next$|data_wait$|.*\.next_batch$"),
    "transfer": re.compile(r"transfer$|.*batch_to_device$"),
    "forward": re.compile(r"(.*\W)?forward(\W.*)?$|.*\.training_step$", re.IGNORECASE),
    "backward": re.compile(r"(.*\W)?backward(\W.*)?$", re.IGNORECASE),
    "optimizer": re.compile(r"optimizer$|Optimizer\.(step|zero_grad)#|\W*optimizer\W*$", re.IGNORECASE),
    "callbacks": re.compile(r"callbacks$|.*\[Callback\].*"),
}
IDLE = ("data", "synchronisation", "launch", "queued", "unknown")
BLOCKING = "DtoH pageable"  # such a copy waits for the GPU, though its call is named asynchronous
# Driver calls for memory: rare, as torch caches it, unless the cache is emptied or too small.
ALLOCATES = re.compile(r"(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|FreeHost|HostFree|MallocHost)")
WAITS = re.compile(
    r"(cuda|hip)(Stream|Device|Event)Synchronize|cu(Stream|Ctx|Event)Synchronize|(cuda|hip)Memcpy(2D|3D|WithStream)?|"
    + ALLOCATES.pattern
)
_COPY = re.compile(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?")
_RESOLUTION = 1e-3  # microseconds: torch writes times to the nanosecond
_AUTOGRAD = "autograd::engine::evaluate_function"


@dataclass
class RankTrace:
    """A trace and what is read off it when asked for; ``number``: the rank it tells, or its place among the files."""

    columns: Columns
    number: int

    @cached_property
    def windows(self) -> tuple[Ints, Floats, Floats]:
        """Number, start and end of each step; one from the first to the last event where none is marked."""
        at = self.columns
        places = at.of(STEP)
        if not len(places):
            return np.zeros(1, np.int64), np.array([0.0]), np.array([float(at.end.max())])
        told = [at.names.texts[name].partition("#")[2] for name in at.name[places]]
        numbers = np.array([int(text) if text.isdecimal() else place for place, text in enumerate(told)])
        return numbers, at.start[places], at.end[places]

    @property
    def marked(self) -> bool:
        """Whether the trace marks steps."""
        return bool((self.columns.kind == STEP).any())

    @cached_property
    def main(self) -> int:
        """The thread that trains: that of the steps, or else the one with most time in operators."""
        at = self.columns
        steps = at.of(STEP)
        if len(steps):
            return int(at.track[steps[0]])
        places = at.of(OPERATOR, ANNOTATION)
        return int(np.bincount(at.track[places], at.length[places]).argmax()) if len(places) else 0

    @cached_property
    def host(self) -> Ints:
        """The host's ranges and memory events, in the order of time."""
        return self.columns.of(*ON_HOST, MEMORY)

    @cached_property
    def nest(self) -> tuple[Ints, Floats]:
        """Of every event the place of the host's range directly around it, or -1; and its time without those inside."""
        return nested(self.columns, self.host)

    @cached_property
    def lengths(self) -> Floats:
        """Of the steps."""
        _, starts, ends = self.windows
        return ends - starts

    def share(self, found: Cover) -> Floats:
        """How much of each step is covered."""
        return found.within(*self.windows[1:])

    def covered(self, events: Mask | Ints) -> Cover:
        """What some events cover."""
        return cover(self.columns.start[events], self.columns.end[events])

    @cached_property
    def phases(self) -> dict[str, Floats]:
        """Microseconds of each phase in each step; disjoint, and with ``other`` they add up to the step.

        A trace without ranges for a phase has none of it; backward is also known by autograd's own ranges.
        """
        known, seconds, so_far, before = dict(self._spans), dict[str, Floats](), NOTHING, np.zeros(len(self.lengths))
        if not len(known["backward"].edges):
            autograd = self._named(lambda text: text.startswith(_AUTOGRAD))
            known["backward"] = self.covered((self.columns.kind == OPERATOR) & autograd)
        for name, one in known.items():
            so_far = so_far | one
            until = self.share(so_far)
            if len(one.edges):
                seconds[name] = until - before
            before = until
        return seconds | {"other": self.lengths - before}

    @property
    def data(self) -> Cover:
        """When the training thread waits for data."""
        return self._spans["data_wait"]

    @cached_property
    def _spans(self) -> dict[str, Cover]:
        """What the training thread's ranges for each phase cover."""
        at = self.columns
        ranges = np.isin(at.kind, (ANNOTATION, OPERATOR)) & (at.track == self.main)
        return {name: self.covered(ranges & self._named(pattern.match)) for name, pattern in PHASES.items()}

    def _named(self, test: Callable[[str], object]) -> Mask:
        return self.columns.matching(test)[self.columns.name]

    @cached_property
    def devices(self) -> dict[int, float]:
        """Microseconds of work on each device that the trace shows."""
        at, places = self.columns, self.columns.of(*ON_DEVICE)
        sums = np.bincount(at.device[places], at.length[places]) if len(places) else np.empty(0)
        return {number: float(sums[number]) for number in np.unique(at.device[places]).tolist()}

    @property
    def device(self) -> int | None:
        """The device that is busy longest; None if the trace shows none."""
        return max(self.devices, key=lambda number: self.devices[number], default=None)

    @cached_property
    def busy(self) -> dict[str, Cover]:
        """When the device computes, communicates, copies, and does any of it; on a CPU when operators run."""
        at = self.columns
        if self.device is None:
            communicating = self._named(COMMUNICATION.match) & (at.kind != STEP) & (at.kind != MEMORY)
            computing = (at.kind == OPERATOR) & ~communicating & ~self._named(_is_loop)
            parts = {"computing": computing, "communication": communicating, "copies": np.zeros(len(at.kind), bool)}
        else:
            on_device = np.isin(at.kind, ON_DEVICE) & (at.device == self.device)
            communicating = on_device & (at.kind == KERNEL) & self._named(COMMUNICATION.match)
            copying = on_device & (at.kind != KERNEL)
            parts = {
                "computing": on_device & ~communicating & ~copying,
                "communication": communicating,
                "copies": copying,
            }
        covers = {name: self.covered(mask) for name, mask in parts.items()}
        return covers | {"any": covers["computing"] | covers["communication"] | covers["copies"]}

    @cached_property
    def uses(self) -> dict[str, Floats]:
        """Microseconds of each step: ``computing``, ``communication`` and ``copies`` alone, idle by cause; they add up.

        Idle by cause: the host waits for ``data``; it has just waited for the device (``synchronisation``); it has not
        launched the next work yet (``launch``); the work was ``queued`` and did not start; or that is ``unknown``.
        """
        busy = self.busy
        computing, communicating = busy["computing"], busy["communication"]
        shares = {"computing": self.share(computing)}
        shares["communication"] = self.share(computing | communicating) - shares["computing"]
        shares["copies"] = self.share(busy["any"]) - shares["computing"] - shares["communication"]
        for cause, idle in self.idle.items():
            shares[cause] = self.share(idle)
        return shares

    @cached_property
    def idle(self) -> dict[str, Cover]:
        """When nothing is done, by cause."""
        _, starts, ends = self.windows
        gaps = self.busy["any"].gaps(float(starts.min()), float(ends.max())) & cover(starts, ends)
        waiting, rest = gaps & self.data, gaps - self.data
        if self.device is None:
            return {"data": waiting, "unknown": rest}
        kinds = self._why(rest)
        return {"data": waiting} | {
            cause: Cover(np.column_stack([rest.starts[kinds == n], rest.ends[kinds == n]]).ravel())
            for n, cause in enumerate(IDLE)
            if n
        }

    def _why(self, gaps: Cover) -> Ints:
        """The place in ``IDLE`` for each gap, by what ends it."""
        at = self.columns
        work = at.of(*ON_DEVICE)
        work = work[at.device[work] == self.device]
        next_ = np.searchsorted(at.start[work], gaps.ends - _RESOLUTION)
        launch = np.append(self.started_by[work], NONE)[next_]
        ended = np.sort(at.end[self.waits])
        last = np.searchsorted(ended, gaps.ends, "right") - 1
        waited = (last >= 0) & (np.append(ended, -np.inf)[last] > gaps.starts)
        return np.select([launch < 0, at.start[launch] <= gaps.starts, waited], [4, 3, 1], 2)

    @cached_property
    def waits(self) -> Ints:
        """The calls in which the host waits for the device, in the order of time."""
        at, calls = self.columns, self.columns.of(CALL)
        pageable = self._named(lambda text: kind_of_copy(text) == BLOCKING) & (at.kind == COPY)
        return calls[self._named(WAITS.fullmatch)[calls] | np.isin(calls, self.started_by[pageable])]

    @cached_property
    def started_by(self) -> Ints:
        """Of every event on a device the place of the call that started it; -1 where the trace does not hold it."""
        at, calls, work = self.columns, self.columns.of(CALL), self.columns.of(*ON_DEVICE)
        starters = np.full(len(at.start), NONE, np.int64)
        if len(calls):
            calls = calls[np.argsort(at.call[calls], kind="stable")]
            near = calls[np.minimum(np.searchsorted(at.call[calls], at.call[work]), len(calls) - 1)]
            known = (at.call[near] == at.call[work]) & (at.call[work] != NONE)
            starters[work[known]] = near[known]
        return starters

    @cached_property
    def threads(self) -> dict[str, Floats]:
        """Microseconds of each step in which each of the host's threads, and each loader's process, is at work."""
        at, working_times = self.columns, {}
        working = (at.kind == OPERATOR) | ((at.kind == LOADER) & self._named("batch".__eq__))
        working &= ~self._named(_is_loop)
        for track in np.unique(at.track[working]):
            process, thread = at.tracks[track]
            name = "training thread" if track == self.main else f"{at.processes.get(process, process)}, thread {thread}"
            working_times[name] = self.share(self.covered(working & (at.track == track)))
        return working_times


Read = Callable[[Path], RankTrace]  # :func:`read_trace`, or what keeps a trace that others read before


def read_trace(path: Path) -> RankTrace:
    """A trace by the rank it tells; raises a TraceError if it shows nothing."""
    columns = read_columns(path)
    return RankTrace(columns, columns.rank or 0)


def read_ranks(paths: Sequence[Path], read: Read = read_trace) -> list[RankTrace]:
    """Traces by rank; where two tell the same rank, or one tells none, they are numbered by their place.

    Raises:
        TraceError: One shows nothing.
    """
    ranks = [read(path) for path in paths]
    told = [rank.columns.rank for rank in ranks]
    if None in told or len({*told}) < len(told):
        for place, rank in enumerate(ranks):
            rank.number = place
    return sorted(ranks, key=lambda rank: rank.number)


def kind_of_copy(name: str) -> str:
    """Such as "HtoD pinned"; the direction alone where the host's memory is not told."""
    match = _COPY.match(name)
    if match is None:
        return name
    memory = {str(place).lower() for place in match.groups()[1:]} & {"pageable", "pinned"}
    return " ".join([match[1], *sorted(memory)])


def _is_loop(text: str) -> bool:
    """Whether an operator is a range around others, which does not compute itself."""
    return bool(PHASES["data_wait"].match(text) or text.startswith("Optimizer."))


def nested(at: Columns, places: Ints) -> tuple[Ints, Floats]:
    """The place of the range directly around each of these events, or -1; and their lengths without those inside.

    As torch does it, a range that ends after the one around it lies beside it.
    """
    parent, own = np.full(len(at.start), -1, np.int64), at.length.copy()
    tracks = at.track[places]
    order = places[np.lexsort((-at.length[places], at.start[places], tracks))]
    parents, inside = [0] * len(order), np.zeros(len(order))
    starts, ends, on = at.start[order].tolist(), at.end[order].tolist(), at.track[order].tolist()
    holds = (at.kind[order] != MEMORY).tolist()
    stack: list[int] = []
    track = -1
    for place, start in enumerate(starts):
        if on[place] != track:
            track = on[place]
            stack.clear()
        end = ends[place]
        while stack and (start >= ends[stack[-1]] or end > ends[stack[-1]]):
            stack.pop()
        parents[place] = stack[-1] if stack else -1
        if holds[place]:
            stack.append(place)
    up = np.array(parents, np.int64)
    has = up >= 0
    np.add.at(inside, up[has], at.length[order][has])
    parent[order[has]] = order[up[has]]
    own[order] -= inside
    return parent, own
