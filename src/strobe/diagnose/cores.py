"""Cores that training, its loader workers and other processes compete for."""

import re

from strobe.diagnose.fetching import for_bytes
from strobe.diagnose.predict import Step, step_of
from strobe.diagnose.symptoms import cores_of_a_rank, crowded
from strobe.present.format import counted, duration, percent
from strobe.records.run import Record, amount

IDLE = 0.15  # of the cores' time: if less is idle, a phase may have waited for a core
PLENTY = 0.5  # of the cores' time: so much of it is enough for workers
TAKEN, MOST_TAKEN = 0.1, 0.95  # of the cores' time, and of training's: from here on it is notable, and no more
FAR = 3.0  # times as fast as training: a loader this fast alone is not what training waits for
MOSTLY = 0.5  # of the wait: so much longer computing outweighs it
BESIDE = 0.2  # cores of this process's other threads: progress bars and log writers use less
TAKERS = {  # by cause
    "shared_machine": "other processes on these cores",
    "workers_hurt": "cores that workers take",
    "child_processes": "cores that other processes of this training take",
    "oversubscription": "cores that a library's threads take",
}
SEVERAL = 1.5  # threads of a worker that compute
SHARED = "what workers gain, the model loses"
SLOWED = 0.1  # of computing alone: so much longer beside workers, and they take its cores


def taken(record: Record, *part: str) -> float:
    """The share of its time that training waited for cores used by others; 0 if that is small.

    ``delayed`` counts the thread that trains only while it was ready to run: a sleeping thread loses nothing to others.
    ``part`` of the record: ``ceilings`` for the time in which these were measured.
    """
    names = ("others", "stolen", "children", "idle", "starved")
    others, stolen, children, idle, starved = (record.amount(*part, "machine", name) for name in names)
    delayed = record.number(*part, "machine", "delayed")
    awaiting = part and (delayed or 0.0) < TAKEN  # ceilings are measured in threads for which the main one may wait
    if delayed is None or awaiting:  # not every kernel reports it; then what others used while no core was idle
        awake = 1.0 if part else 1 - _waiting_for_bytes(record)
        unidle = min(others + stolen, starved or 1.0, awake) if idle <= IDLE else 0.0
        delayed = max(delayed or 0.0, unidle)
    elif children:  # its own processes delay it as well, each by what it computes
        delayed *= (others + stolen) / (others + stolen + children)
    return min(delayed, MOST_TAKEN) if others + stolen >= TAKEN <= delayed else 0.0


def interrupting(record: Record) -> float:
    """The most that other processes may add to a mean step, as a share: each operation waits for its slowest core.

    0 where cores are idle, which they take then.
    """
    others, stolen, idle = (record.amount("machine", name) for name in ("others", "stolen", "idle"))
    return (others + stolen) * (cores_of_a_rank(record) or 1.0) if idle <= IDLE else 0.0


def taken_by_children(record: Record, step: Step) -> float:
    """The share of its time that training waited for cores used by processes it started; 0 if that is small.

    On a CPU, where training computes on them itself.
    """
    others, stolen, children, delayed = (
        record.amount("machine", name) for name in ("others", "stolen", "children", "delayed")
    )
    if step.cores is None or step.ranks > 1 or children < TAKEN:
        return 0.0
    delayed = min(delayed, MOST_TAKEN) * children / (others + stolen + children)
    return delayed if delayed >= TAKEN else 0.0


def taken_by_threads(record: Record) -> float:
    """The share of its time that training waited for cores used by threads that are not torch's; 0 if that is small.

    Other libraries have pools of such threads, which keep a core busy for some time after each call. No process beside
    training wants a core then, no thread of Python's computes, and torch has no more threads than cores.
    """
    others, children = (record.number("machine", name) for name in ("others", "children"))
    own, named = cores_of_a_rank(record) or 0.0, sum(cores for _, cores in own_threads(record))
    fitting = record.on_cpu and (record.count("threads") or 1) <= own
    if others is None or children is None or not fitting:
        return 0.0
    elsewhere = others + children + record.amount("machine", "stolen")
    idle = record.number("machine", "idle")
    if max(elsewhere, named) >= TAKEN or idle is None or idle > IDLE:
        return 0.0
    delayed, paused = (record.amount("machine", name) for name in ("delayed", "throttled"))
    lost = delayed - paused - elsewhere * own
    return min(lost, MOST_TAKEN) if lost >= TAKEN else 0.0


def needless_threads(record: Record) -> float:
    """The share of what loader workers compute that is on more threads than there are cores for each; 0 if it is small.

    Only where hardly a core is idle: else these threads take nothing from anybody.
    """
    threads, idle = record.number("worker_threads") or 1.0, record.number("machine", "idle")
    each = max(1.0, (cores_of_a_rank(record) or 1.0) / max(1, record.count("num_workers") or 1))
    return 1 - each / threads if threads >= SEVERAL * each and idle is not None and idle <= IDLE else 0.0


def waits_for_cores(record: Record, step: Step) -> dict[str, float]:
    """The shares of its time that training waited for cores, by cause."""
    children, needless = taken_by_children(record, step), needless_threads(record)
    workers, processes = (children, 0.0) if step.workers else (0.0, children)
    shares = taken(record), workers * (1 - needless), processes, workers * needless + taken_by_threads(record)
    return dict(zip(TAKERS, shares, strict=True))


def own_threads(record: Record) -> list[tuple[str, float]]:
    """Names and cores of this process's other threads that computed; torch's, and other pools', have no names."""
    entries = record.entries("machine", "threads")
    threads = [(str(entry.get("name")), amount(entry.get("cores"))) for entry in entries]
    return [(name, cores) for name, cores in threads if cores > 0]


def threads_beside(record: Record) -> list[tuple[str, float]]:
    """Those of ``own_threads`` that do not load, and so may delay training."""
    return [(name, cores) for name, cores in own_threads(record) if not re.match(r"loader|.*pin_memory", name)]


def _waiting_for_bytes(record: Record) -> float:
    """The share of its time that training waits for bytes from storage, for which it needs no core."""
    step = step_of(record)
    return 0.0 if step is None else min(step.wait, for_bytes(record, step) / step.images) / step.total


def left_idle(record: Record) -> float | None:
    """The share of the cores' time that training leaves to others, whether these use it or not; None if unknown."""
    own = record.number("machine", "own")
    return record.number("machine", "idle") if own is None else max(0.0, 1 - own)


def lack_of_cores(record: Record, step: Step) -> bool:
    """Whether training waits for its loader because cores are short, and not because loading takes long."""
    idle = left_idle(record)
    if step.loader is None or idle is None or idle > IDLE or taken(record):
        return False
    return crowded(record, step) and step.length > FAR / step.loader.median


def lost_cores(record: Record, step: Step) -> str:
    """A sentence on cores that workers take from training; empty where there are enough for both."""
    idle, slower = left_idle(record), step.compute - step.undisturbed
    if step.cores is None or not crowded(record, step) or taken(record):
        return ""
    sentence = sharing(record, step) + ("" if idle is None else f" (training leaves {percent(idle)} idle)")
    if slower >= SLOWED * max(step.undisturbed, step.length):
        alone, beside = (duration(seconds * step.images) for seconds in (step.undisturbed, step.compute))
        return f"{sentence}: computing takes {beside} a step, alone {alone}."
    return f"{sentence}." if idle is not None and idle <= IDLE else ""


def fewer_workers(step: Step) -> str:
    """The advice to load with fewer workers, and a space, where computing loses much to them; else empty."""
    loses = step.compute - step.undisturbed >= MOSTLY * step.wait
    return f"Try fewer workers, or none: {SHARED}. " if loses else ""


def sharing(record: Record, step: Step) -> str:
    """Who competes for the cores: ``2 workers and 2 computing threads share 2 cores``."""
    own, threads = cores_of_a_rank(record) or 0, record.count("threads") or 1
    return f"{counted(step.workers, 'worker')} and {counted(threads, 'computing thread')} share {own:g} cores"


def untried_workers(record: Record, count: int) -> str:
    """The advice to load with so many workers, which was not measured: on a CPU they have what training leaves idle."""
    idle, workers = left_idle(record), counted(count, "worker")
    if not record.on_cpu or (idle is not None and idle >= PLENTY):
        return f"Load with {workers} (not measured)."
    if idle is None:
        return f"Load with {workers} (not measured: they share the cores with training)."
    if idle <= IDLE:
        helps = "helps" if count == 1 else "help"
        return f"No core is free for workers (training leaves {percent(idle)} idle): measure whether {workers} {helps}."
    bound = f"the {percent(idle)} of the cores that training leaves idle allow {1 / (1 - idle):.1f}x at most"
    return f"Load with {workers} (not measured: {bound})."
