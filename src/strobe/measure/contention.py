"""What else the machine did while something was measured: other processes, the hypervisor, the quota, swapping.

From Linux's counters (proc(5): ``/proc/stat``, ``/proc/PID/stat``, ``/proc/vmstat``; the kernel's
Documentation/accounting/psi.rst; ``cpu.stat`` of a cgroup) at two moments. What a system does not report is None.
"""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import get_native_id
from typing import Any

from strobe.measure.environment import CGROUP, quotas

TICKS = os.sysconf("SC_CLK_TCK")  # per second: the unit of the kernel's counters
NAMED = 3  # how many other processes are named, busiest first
KERNEL = 2  # the parent of the kernel's own workers
LEAST_CORES = 0.05  # a process that used less is not named

MOST_CORES = 8  # whose clocks are read
READ_EVERY, READ_SHARE = 1.0, 0.01  # between two readings: seconds at least, and their share of the time

_PROC, _CGROUP, _CORES = Path("/proc"), CGROUP, Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Process:
    """A process: its parent, and the core-seconds of it and of the children that it has waited for."""

    name: str
    parent: int
    seconds: float
    reaped: float


@dataclass(frozen=True)
class Reading:
    """Counters at one moment, in seconds, those of processors in core-seconds."""

    at: float
    busy: float | None  # computing, on the processors that this process may use
    stolen: float | None  # taken by the hypervisor for other virtual machines
    throttled: float | None  # with the cgroup's quota used up, summed over its processors
    periods: float | None  # periods of the quota so far
    stopped: float | None  # those periods in which it was used up
    starved: float | None  # with some process of the machine waiting for a processor
    delayed: float | None  # with ``thread`` waiting for a processor
    swapped: int | None  # bytes
    choked: float | None  # with every process that could run waiting for memory
    throttles: int | None  # how often a core slowed down because it was too hot
    hertz: float | None  # mean clock of the first cores that this process may use
    processes: Mapping[int, Process]
    thread: int  # as Linux numbers it


def read(thread: int | None = None) -> Reading:
    """The counters now, with those of the calling thread or another one; takes some milliseconds."""
    thread = thread or get_native_id()
    busy, stolen = _processors()
    throttled, periods, stopped = _quota()
    starved = _field(_PROC / "pressure" / "cpu", "some")
    choked, cores = _field(_PROC / "pressure" / "memory", "full"), sorted(os.sched_getaffinity(0))[:MOST_CORES]
    swapped_in, swapped_out = (_field(_PROC / "vmstat", name) for name in ("pswpin", "pswpout"))
    return Reading(
        time.monotonic(),
        busy,
        stolen,
        throttled,
        periods,
        stopped,
        None if starved is None else starved / 1e6,
        delayed(thread),
        None if swapped_in is None else int(swapped_in + (swapped_out or 0)) * os.sysconf("SC_PAGE_SIZE"),
        None if choked is None else choked / 1e6,
        None
        if (throttles := _of_cores(cores, "thermal_throttle/core_throttle_count")) is None
        else int(sum(throttles)),
        None if (clocks := _of_cores(cores, "cpufreq/scaling_cur_freq")) is None else 1e3 * sum(clocks) / len(clocks),
        {int(path.parent.name): process for path in _PROC.glob("[0-9]*/stat") if (process := _process(path))},
        thread,
    )


def between(before: Reading, after: Reading, usable: float) -> dict[str, Any]:
    """The ``machine`` of ``summary.json``, for a process that may use ``usable`` cores.

    Shares of these cores' time: ``own``, this process and those it has started; ``children``, of that only the latter;
    ``others``, ``stolen`` and ``idle``. Shares of wall time: ``throttled``, ``starved`` and ``delayed``, with the
    thread that trains ready to run but without a processor; ``choked``. ``swapped_bytes``, ``throttles``, and
    ``hertz`` at both moments. ``busiest`` are other processes: ``name``, ``pid`` and ``cores``.
    """
    seconds = max(after.at - before.at, 1e-9)

    def more(name: str) -> Any:
        ends = getattr(before, name), getattr(after, name)
        return None if None in ends else max(0, ends[1] - ends[0])

    def share(name: str, per: float = 1.0) -> float | None:
        return None if (spent := more(name)) is None else spent / seconds / per

    throttled, periods = share("throttled"), share("periods")
    if throttled is not None and periods:  # summed over processors, it can exceed the time that passed
        throttled = min(throttled, (share("stopped") or 0.0) / periods)
    mine = _family(after.processes)
    own = (_used(after, mine) - _used(before, _family(before.processes))) / seconds / usable
    alone = [one.processes[os.getpid()].seconds for one in (before, after) if os.getpid() in one.processes]
    busy, stolen = share("busy", usable), share("stolen", usable)
    others = None if busy is None else max(0.0, busy - own)
    users: list[tuple[float, str, int]] = []
    for pid, process in after.processes.items():
        began = before.processes.get(pid)
        used = (process.seconds - (began.seconds if began and began.name == process.name else 0.0)) / seconds
        if pid not in mine and used >= LEAST_CORES and process.parent != KERNEL:
            users.append((used, process.name, pid))

    return {
        "seconds": seconds,
        "own": own,
        "children": max(0.0, own - (alone[1] - alone[0]) / seconds / usable) if len(alone) == 2 else None,
        "others": others,
        "stolen": stolen,
        "idle": None if others is None else max(0.0, 1.0 - own - others - (stolen or 0.0)),
        "throttled": throttled,
        "starved": share("starved"),
        "delayed": share("delayed") if before.thread == after.thread else None,
        "swapped_bytes": more("swapped"),
        "choked": share("choked"),
        "throttles": more("throttles"),
        "hertz": [before.hertz, after.hertz],
        "busiest": [
            {"name": _called(pid, name), "pid": pid, "cores": used}
            for used, name, pid in sorted(users)[: -NAMED - 1 : -1]
        ],
    }


def _processors() -> tuple[float | None, float | None]:
    """Core-seconds that the usable processors computed, and that the hypervisor took."""
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = [line.split() for line in _text(_PROC / "stat").splitlines() if line.startswith("cpu")]
    ticks = [[int(value) for value in line[1:]] for line in lines if line[0] in usable and len(line) > 8]
    if not any(map(sum, ticks)):
        return None, None
    computing = sum(user + nice + system + irq + soft for user, nice, system, _, _, irq, soft, *_ in ticks)
    return computing / TICKS, sum(line[7] for line in ticks) / TICKS


def _quota() -> tuple[float | None, float | None, float | None]:
    """Seconds that the smallest quota stopped its cgroup (version 2 or 1), its periods, and those in which it did."""
    for path in (folder / "cpu.stat" for folder in quotas(_CGROUP, _PROC / "self" / "cgroup")):
        for name, unit in (("throttled_usec", 1e6), ("throttled_time", 1e9)):
            if (throttled := _field(path, name)) is not None:
                return throttled / unit, _field(path, "nr_periods"), _field(path, "nr_throttled")
    return None, None, None


def _of_cores(cores: Sequence[int], name: str) -> list[float] | None:
    """A file of each core below /sys/devices/system/cpu; None if one is missing, as in most virtual machines."""
    with contextlib.suppress(OSError, ValueError):
        return [float((_CORES / f"cpu{core}" / name).read_text()) for core in cores]
    return None


class Readings:
    """The first and the latest reading of something that lasts."""

    def __init__(self) -> None:
        self._first = self._latest = read()
        self._next = self._first.at + READ_EVERY

    def read_on(self) -> None:
        """Read once more where that is due, so that it costs little."""
        if (began := time.monotonic()) > self._next:
            self._latest, ended = read(self._first.thread), time.monotonic()
            self._next = ended + max(READ_EVERY, (ended - began) / READ_SHARE)

    def both(self) -> tuple[Reading, Reading]:
        """The two; the second one of now where there is no other."""
        return self._first, read(self._first.thread) if self._latest is self._first else self._latest


def delayed(thread: int | None = None) -> float | None:
    """Seconds so far that the calling thread, or another one, waited for a processor; None if Linux does not report it.

    Documentation/scheduler/sched-stats.rst: the second number is time on a run queue, in nanoseconds.
    """
    fields = _text(_PROC / "self" / "task" / str(thread or get_native_id()) / "schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) == 3 else None


def _process(path: Path) -> Process | None:
    before, _, after = _text(path).rpartition(")")
    fields = after.split()
    if len(fields) < 15:  # it has just gone
        return None
    own, reaped = (sum(int(value) for value in fields[start : start + 2]) / TICKS for start in (11, 13))
    return Process(before.partition("(")[2], int(fields[1]), own, reaped)


def _called(pid: int, name: str) -> str:
    """Its name, and of Python what it runs, without further arguments, which may hold what is nobody's business."""
    words = iter(_text(_PROC / str(pid) / "cmdline").split("\0")[1:] if name.startswith("python") else [])
    for word in words:
        if word in ("-W", "-X"):
            next(words, None)
        elif word in ("", "-", "-c"):
            break
        elif word == "-m" or not word.startswith("-"):
            return f"{name} {f'-m {next(words, str())}' if word == '-m' else Path(word).name}"
    return name


def _family(processes: Mapping[int, Process]) -> set[int]:
    """This process and its descendants; under torchrun, also the other ranks."""
    family = {os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else os.getpid()}
    while more := {pid for pid, process in processes.items() if process.parent in family} - family:
        family |= more
    return family


def _used(reading: Reading, family: set[int]) -> float:
    return sum(one.seconds + one.reaped for pid in family if (one := reading.processes.get(pid)))


def _field(path: Path, name: str) -> float | None:
    """The last number on the line that begins with this name."""
    for line in _text(path).splitlines():
        if line.split()[:1] == [name]:
            with contextlib.suppress(ValueError):
                return float(line.split()[-1].rpartition("=")[2])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
