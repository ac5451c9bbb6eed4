"""The rows of a training's steps, and what is asked between them; knows nothing of Lightning."""

import csv
import json
import logging
import multiprocessing
import resource
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from .batches import bytes_of, ignored_of, padding_of
from .clock import Clock, Lap, by_phase
from .columns import (
    AFTER,
    BETWEEN,
    COLUMNS,
    CPU,
    DEVICE,
    EXPOSED,
    FAULTS,
    GAP,
    GAPS,
    HEAD,
    KERNEL,
    MAIN,
    OWNED,
    PHASES,
    RANKS,
    lines_of,
)
from .dataflow import STEPS, Dataflow
from .threads import Threads
from .tracer import profilers
from .waits import Waits
from .wasted import KINDS, many, wasted
from .worker_lines import WorkerLines

AT_ONCE = 64  # rows, of a single process
FLUSH_SECONDS = 5  # at most so much of it is lost when it is killed
ASKED_SECONDS, ASKED_SHARE = 0.5, 1 / 32  # between two looks at memory: at least, and of the time since the start
PAGE = resource.getpagesize()
LIVE_STEPS = 20  # over which the latest rate is taken
BATCHES = 20  # that are looked into: padding is alike in all
LOOKED_FOR = ("padding", "ignored_labels", "batch_bytes", "batch_storage_bytes")  # in them; ``batches`` explains each

PACKING = "_pack_padded_sequence"  # what leaves padding out of a recurrent network's operations

_log = logging.getLogger(__name__)
_SECONDS = ",%.7f"
_STEP = ",".join(["%s"] * len(HEAD)) + _SECONDS * len(("total", *PHASES))  # from `step` to the phases
_GAPS, _NO_GAPS = _SECONDS * len(GAPS), ",0.0" * len(GAPS)
_CPU, _NO_CPU = _SECONDS * len((*CPU, *MAIN, KERNEL)) + ",%d", "," * len((*CPU, *MAIN, KERNEL, FAULTS))


@dataclass(slots=True)
class Row:
    """A step, to which is added what follows it, and what its device did."""

    head: Sequence[Any]  # ``HEAD``
    lap: Lap
    among: Sequence[Any]  # ``RANKS``
    gaps: list[float] | None = None  # seconds of ``GAPS``
    device: Mapping[str, float] | None = None
    after: list[float] | None = None  # seconds of each owner of hooks, of those in the gaps


class StepRows:
    """Writes ``COLUMNS``, with a `device` its seconds, and each owner's of hooks, in steps and `between` them.

    Of one of several ranks also ``RANKS``.
    """

    def __init__(
        self, path: Path, owners: Sequence[str], *, between: Sequence[str] = (), device: bool, ranks: bool = False
    ) -> None:
        self._owners = [OWNED + owner for owner in owners]
        self._between, self._no_after = between, ",0.0" * len(between)
        self._at_once = 1 if ranks else AT_ONCE  # where one dies the others tell at which step
        self._device = (*DEVICE, *[EXPOSED] * ranks) if device else ()
        self._line = _STEP + "%s%s" + _SECONDS + "%s" + _SECONDS * len(owners) + "%s\r\n"
        self._waiting: deque[Row] = deque()
        self._untold: deque[Row] = deque()  # those of which the device's seconds are not known
        self._latest: tuple[Row, int] | None = None  # one of several ranks writes it at once: where it begins
        self.folder = path.parent
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lines = lines_of(path) if path.stem.isdecimal() else None  # of a rank other than 0
        if self._lines is not None:
            self._lines.unlink(missing_ok=True)
        self._file = path.open("w", newline="", buffering=1 << 16)
        names = [*RANKS * ranks, *(f"device_{name}" for name in self._device)]
        csv.writer(self._file).writerow([*COLUMNS, *names, *self._owners, *(AFTER + owner for owner in between)])
        try:
            self._file.flush()
        except OSError:  # of a full disk, which closing it meets again
            with suppress(OSError):
                self._file.close()
            raise
        self._flushed = time.monotonic()

    def add(self, head: Sequence[Any], lap: Lap, among: Sequence[Any] = ()) -> Row:
        """A step has ended: those before it are followed by nothing more."""
        self._waiting.append(row := Row(head, lap, among))
        if self._device:
            self._untold.append(row)
        return row

    def follow(self, gaps: Mapping[str, float], lap: Lap | None = None) -> None:
        """Seconds between the latest step and the next one, in addition to those told already; whose they were."""
        if not self._waiting and self._latest is not None:  # written without: what comes in its place is longer
            row, start = self._latest
            self._file.seek(start)
            self._waiting.append(row)
        if self._waiting:
            row = self._waiting[-1]
            row.gaps = _sum(row.gaps, [gaps.get(name, 0.0) for name in GAPS])
            if lap is not None:
                row.after = _sum(row.after, [lap.owned(name) for name in self._between])

    def tell(self, device: Iterable[Mapping[str, float]]) -> None:
        """The device's seconds of the next steps of which they were not known."""
        for seconds in device:
            if self._untold:
                self._untold.popleft().device = seconds

    def write(self, now: float, *, last: bool = False) -> None:
        """Write the rows about which all is known, many at once, which costs least; at the `last` moment all.

        ``now`` is by time.monotonic.
        """
        if not last and len(self._waiting) < self._at_once and now - self._flushed <= FLUSH_SECONDS:
            return
        while self._waiting:
            row = self._waiting[0]
            if not last and ((len(self._waiting) == 1 < self._at_once) or not self._is_known(row)):
                break
            if self._at_once == 1:
                self._latest = row, self._file.tell()
            self._file.write(self._written(self._waiting.popleft()))
        if now - self._flushed > FLUSH_SECONDS or self._at_once == 1:
            self._file.flush()
            self._flushed = now

    def close(self, lines: Sequence[Mapping[str, Any]] = ()) -> None:
        """Write what is left, and the lines that a rank other than 0 was seen in: rank 0 waits for both."""
        with self._file:
            if self._lines is not None:
                with suppress(OSError):  # a full disk, which the rows meet again
                    half = self._lines.with_suffix(".half")
                    half.write_text(json.dumps(lines) + "\n")
                    half.replace(self._lines)
            self.write(time.monotonic(), last=True)
            self._latest = None

    def _is_known(self, row: Row) -> bool:
        """Whether a device has told all: of what follows the row, before the next one."""
        following = self._waiting[1].device if len(self._waiting) > 1 else None
        return not self._device or (row.device is not None and (row.gaps is None or following is not None))

    def _written(self, row: Row) -> str:
        lap, spent = row.lap, row.lap.spent
        phases = by_phase(spent)
        gaps, after = row.gaps, row.after
        if gaps and row.device and (own := row.device.get(GAP)) is not None and own < sum(gaps):
            # What comes first after a step waits until the device has done all that steps gave it, which is theirs.
            share = own / sum(gaps)
            gaps = [share * seconds for seconds in gaps]
            after = after and [share * seconds for seconds in after]
        more = [*row.among, *[row.device and row.device.get(name) for name in self._device]]
        return self._line % (
            *["" if value is None else value for value in row.head],
            sum(phases),
            *phases,
            _GAPS % tuple(gaps) if gaps else _NO_GAPS,
            _NO_CPU
            if lap.computed is None
            else _CPU % (*by_phase(lap.computed), *by_phase(lap.alone), lap.kernel, lap.faults),
            lap.collecting / 1e9,
            "".join(map(_field, more)),
            *[spent.get(owner, 0) / 1e9 for owner in self._owners],
            _SECONDS * len(after) % tuple(after) if after else self._no_after,
        )


def _field(value: Any) -> str:
    return "," if value is None else _SECONDS % value if isinstance(value, float) else f",{value}"


def _mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(before: list[float] | None, more: list[float]) -> list[float]:
    return more if before is None else [one + other for one, other in zip(before, more, strict=True)]


class MemoryWatch:
    """What processes hold of memory that is no file's and not shared, asked twice a second and later more seldom."""

    def __init__(self) -> None:
        self._began = self._next = time.monotonic()

    def held(self, now: float) -> tuple[int | None, int | None]:
        """Bytes of this process, and of the largest that it started, such as loader workers; None where not asked."""
        if now < self._next:
            return None, None
        self._next = now + max(ASKED_SECONDS, ASKED_SHARE * (now - self._began))
        children = [held for child in multiprocessing.active_children() if (held := _held(child.pid)) is not None]
        return _held("self"), max(children, default=None)


def _held(pid: int | str | None) -> int | None:
    """Pages of a process less those that it shares (proc(5), statm), in bytes; None where it has gone."""
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return None
    return (int(resident) - int(shared)) * PAGE


def _newest_process() -> int:
    """The number of the latest living process that this one has started by multiprocessing, such as a loader worker."""
    living: Iterable[Any] = tuple(vars(multiprocessing.process)["_children"])
    return max((one._identity[-1] for one in living), default=0)


class StepLog:
    """What a recorder of steps does, whoever tells it where they end: the rows, memory, threads, and the latest rate.

    What the callbacks in ``checkpoints`` take between steps has its own column. Where training is ``alone``, in one
    process on a CPU, the operations of its second and third step are followed, unless it is profiled.
    """

    def __init__(
        self,
        clock: Clock,
        rows: StepRows,
        checkpoints: Collection[str] = (),
        waits: Waits | None = None,
        *,
        alone: bool = False,
        workers: WorkerLines | None = None,
    ) -> None:
        self.clock, self._rows, self._checkpoints, self._waits = clock, rows, checkpoints, waits
        self.between = False  # whether the latest epoch has ended, and no other begun
        self.threads = Threads(
            lambda: BETWEEN if self.between and clock.phase == "other" else clock.phase,
            lambda: clock.lasted,
            rows.folder,
            workers,
        )
        self.flow, self.follows = Dataflow(lambda: clock.phase), alone  # whether it has steps to follow
        self.knows_updates = True  # or a script may read gradients anywhere, to change its weights itself
        self._told: dict[str, Any] = dict.fromkeys(KINDS) | {"costliest": {}}  # of their operations
        self._many: dict[str, Any] = {}  # where most of these are
        self._computing: set[tuple[str, int]] = set()  # files, and lines in them that call operations
        self._batches: list[tuple[float | None, ...]] = []  # a value for each of LOOKED_FOR
        self._memory = MemoryWatch()
        self._recent: deque[Row] = deque(maxlen=LIVE_STEPS)
        self._graphs, self._newest = _compiled_graphs(), _newest_process()
        self.compiles = False  # whether torch.compile has made a graph in a step

    def end_step(
        self, step: int, epoch: int, images: int | None, *, profiled: bool, elements: int | None = None
    ) -> Lap:
        """End the step, whose batch has so many ``elements`` among several ranks, and begin the next one."""
        lap, now = self.clock.lap(), time.monotonic()
        among = self._waits.of(lap, elements) if self._waits else ()
        self.threads.look(now)
        before, self._graphs = self._graphs, _compiled_graphs()
        compiled = before != self._graphs
        self.compiles |= compiled
        began, self._newest = self._newest, max(self._newest, _newest_process())
        flags = int(profiled), int(compiled), int(began < self._newest)
        head = (step, epoch, images, lap.updates, lap.optimizers, *flags, *self._memory.held(now))
        self._recent.append(self._rows.add(head, lap, among))
        if self.clock.device is not None and (seconds := self.clock.device.ready()):
            self._rows.tell(seconds)
        self._rows.write(now)
        if self.follows:
            self._follow(lap)
        return lap

    def _follow(self, lap: Lap) -> None:
        """Follow the operations of the steps after the first one; an error of that is kept from the training."""
        flow = self.flow
        try:
            if self.compiles or (len(self._recent) == 1 and _is_profiled()):
                flow.remove()
            elif len(self._recent) == 1:
                flow.begin()
            else:
                flow.end_step(
                    {name: spent / 1e9 for name, spent in lap.spent.items()},
                    updated=self.knows_updates and lap.updates > 0,
                )
            if len(flow.spent) == STEPS:
                self._told = wasted(flow) | {"costliest": flow.costliest()}
                if any(one.name == PACKING for one in flow.operations):
                    self._told["padding"] = None  # of which it computes next to nothing
                self._computing, self._many = flow.lines, many(flow.operations)
                flow.operations.clear()
        except Exception as error:
            flow.failure = error
            flow.remove()
        self.follows = flow.follows

    def look_into(self, batch: Any) -> None:
        """Look for what is for nothing in the first batches."""
        if len(self._batches) < BATCHES:
            self._batches.append((padding_of(batch), ignored_of(batch), *bytes_of(batch)))

    def _marked(self, line: dict[str, Any]) -> dict[str, Any]:
        """The line with ``torch``, whether operations of torch's were seen in it, if any were followed at all."""
        return line | {"torch": (line["file"], line["line"]) in self._computing} if self._computing else line

    def meanwhile(self) -> dict[str, Any]:
        """Keys of ``summary.json``: lines, operations, and what of batches and of computing was for nothing."""
        if self.flow.failure is not None:
            _log.warning("No operations were followed, by an error of this program", exc_info=self.flow.failure)
        batches = {name: _mean(each[place] for each in self._batches) for place, name in enumerate(LOOKED_FOR)}
        laps = [row.lap.phases for row in self._recent]
        usual = {phase: median(lap[phase] for lap in laps) for phase in PHASES} if laps else {}
        return {
            **batches,
            "lines": [self._marked(one) for one in self.threads.lines()],
            "long_lines": self.threads.long_lines(usual),
            "calls": self.threads.calls(usual),
            "worker_threads": self.threads.worker_threads(),
            "operations": (costs := self.threads.operations.costs) and costs | self._many,
            **self._told,
        }

    @property
    def has_steps(self) -> bool:
        """Whether a step has ended."""
        return bool(self._recent)

    def live(self) -> tuple[float, float] | None:
        """Images/s of the latest steps and what lies between them, and the share of that time that waited for data.

        None before the first step.
        """
        laps = [row.lap for row in self._recent]
        seconds = sum(sum(lap.spent.values()) for lap in laps) / 1e9 + sum(sum(row.gaps or ()) for row in self._recent)
        images = sum(row.head[2] or 0 for row in self._recent)
        waited = sum(lap.spent.get("data_wait", 0) for lap in laps) / 1e9
        return (images / seconds, waited / seconds) if images else None

    def begin(self, validation: float = 0.0, *, epoch: bool = False) -> None:
        """Begin a step now; the time since the last one ended goes into that one's row."""
        lap, self.between = self.clock.restart(epoch=epoch), False
        self._newest = max(self._newest, _newest_process())  # validation's workers are of no step
        checkpoints = sum(lap.owned(name) for name in self._checkpoints)
        validation -= min(checkpoints, validation)  # they are saved before it is said to have ended
        between = max(0.0, sum(lap.spent.values()) / 1e9 - validation - checkpoints)
        self._rows.follow(
            {"validation": validation, "checkpoints": checkpoints, BETWEEN: between}, None if validation else lap
        )

    def close(self) -> None:
        """Write what is left; the device is waited for."""
        self.flow.remove()
        self.threads.end()
        with suppress(RuntimeError):  # the error of a device, which ended the run, whenever it is asked
            self._rows.tell(self.clock.device.finish() if self.clock.device else ())
        self._rows.close(self.threads.lines())


def _is_profiled() -> bool:
    """Whether torch.profiler records, or may later on: its trace would show what follows operations."""
    return torch._C._autograd._profiler_enabled() or bool(profilers())


def _compiled_graphs() -> int:
    """How many graphs torch.compile has made in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters["stats"]["unique_graphs"] if dynamo else 0
