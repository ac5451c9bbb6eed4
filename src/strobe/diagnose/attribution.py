"""Where the seconds of a mean step go: parts that add up, each with the cause that a finding would name."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from strobe.callbacks.columns import OWNED
from strobe.diagnose.cores import (
    BESIDE,
    IDLE,
    TAKERS,
    lack_of_cores,
    needless_threads,
    taken,
    threads_beside,
    waits_for_cores,
)
from strobe.diagnose.fetching import CAUSES as FETCHING
from strobe.diagnose.fetching import for_bytes, storage_cause
from strobe.diagnose.hooks import hooks
from strobe.diagnose.looks import in_libraries, parts_seen
from strobe.diagnose.predict import Step, saved_by
from strobe.diagnose.restarts import epoch_starts, restarts
from strobe.diagnose.symptoms import (
    aside,
    cores_of_a_rank,
    made_up,
    many_operations,
    spent_in,
    too_low,
    waits_for_gpu,
    without_threads,
)
from strobe.diagnose.uneven import FEWEST, growth, uneven
from strobe.diagnose.wasted import FOR_NOTHING, for_gradients, for_nothing, padded
from strobe.records.run import Record, amount, as_number

OPTIMIZER_SHARE = 0.1  # of the step: a longer update, or code around it, is examined
SLEEPING = 0.5  # cores: computing uses one; less means waiting for something
AWAKE = 0.8  # of a phase: if it computes for less, it is idle for part of its time
ALIKE = 2.0  # times the share that the other phases wait
ALONE, SERIAL = 0.7, 0.5  # cores of the thread that trains at least; of a phase on that thread alone at least
MORE_SERIAL, CONTRAST = 0.3, 3.0  # or so much of it, if that is so many times as much as of the other phases
TRIED = {  # computing below what the machine gives, as far as the model alone was measured to be faster
    "threads": ("threads", "computing on a slower number of threads"),
    "memory_layout": ("model.channels_last", "computing in the slower memory layout"),
    "precision": ("trainer.precision", "computing in the slower precision"),
}
WHATEVER_SIZE = ("constant", "order", "carried")  # waste that costs as much in a batch of any size
PHASES = ("transfer", "prepare", "forward", "backward", "optimizer", "callbacks", "other")
# Causes that are what a GPU's host does: together they cost no more than the time in which the GPU idles. Within its
# phases only a trace tells when it does.
IN_CALLBACKS = ("callback", "logging", "checkpoint")
ON_HOST = (
    *(*IN_CALLBACKS, "uneven_steps", "background_thread", "garbage_collection", "stalled"),
    *("library_call", "outside_torch", "python_code"),
)
COMPUTING = {"forward": "the forward pass", "backward": "the backward pass", "other": "code outside all phases"}
PLACES = dict.fromkeys(("transfer", "prepare"), "scaling and augmenting") | COMPUTING
IN_WORDS = PLACES | {"data_wait": "waiting for data", "optimizer": "the update", "callbacks": "callbacks"}  # each phase


@dataclass(frozen=True)
class Part:
    """A part of a mean step, or of the time until the next one.

    Attributes:
        cause: as in findings; ``computing`` is what a perfect run would do too, as far as is known.
        subject: the class for ``callback``, ``logging`` and ``checkpoint``, the phase for ``stalled``; otherwise empty.
        name: for people.
        seconds: per step.
        share: of training time.
    """

    cause: str
    subject: str
    name: str
    seconds: float
    share: float = 0.0


def attribution(record: Record, step: Step) -> list[Part]:
    """The parts of a step and of the time after it, which add up; the largest first."""
    total = step.total * step.images
    parts = [part for part in _parts(record, step) if part.seconds > 0]
    bounded = ON_HOST if record.number("trace_evidence", "device_busy") is not None else IN_CALLBACKS
    most = min(1.0, step.spare / max(1e-9, sum(part.seconds for part in parts if part.cause in bounded)))
    parts = [replace(part, seconds=part.seconds * most) if part.cause in bounded else part for part in parts]
    excess = max(1.0, sum(part.seconds for part in parts) / total)
    parts = [replace(part, seconds=part.seconds / excess) for part in parts]
    waits = {cause: total * share for cause, share in waits_for_cores(record, step).items()}
    if lost := sum(waits.values()):  # they stretch all alike, but the time in which a step waits for bytes
        fetching = min(for_bytes(record, step), total - lost)
        asleep = [min(part.seconds, fetching) if part.cause in FETCHING else 0.0 for part in parts]
        own = 1 - lost / (total - sum(asleep))
        parts = [
            replace(part, seconds=idle + own * (part.seconds - idle)) for part, idle in zip(parts, asleep, strict=True)
        ]
        parts += [Part(cause, "", TAKERS[cause], seconds) for cause, seconds in waits.items() if seconds]
    rest = max(0.0, total - sum(part.seconds for part in parts))
    parts.append(Part("computing", "", "computing", rest))
    return sorted((replace(part, share=part.seconds / total) for part in parts), key=lambda part: -part.seconds)


def seconds_of(cause: str, record: Record, step: Step, *, subject: str | None = None) -> float:
    """Of a mean step, all parts of this cause, or those of a subject."""
    parts = [part for part in attribution(record, step) if part.cause == cause]
    return sum(part.seconds for part in parts if subject is None or part.subject == subject)


def fixed_cost(record: Record, step: Step) -> float:
    """The fixed cost of a batch, in seconds of computing per step, by the rates at two sizes; 0 if unknown, or wrong.

    A GPU is idle meanwhile. Where computing grows, the two rates differ by how many steps they were measured for.
    """
    if (grown := growth(record, step)) is not None and grown.phase in COMPUTING:
        return 0.0
    if step.model is None or too_low(record):
        return 0.0
    sizes = [entry for entry in record.alternatives("model") if entry.changes.keys() == {"data.batch_size"}]
    if not (larger := [one for one in sizes if one.images and one.images > step.images]):
        return 0.0
    best = max(larger, key=lambda one: one.rate.median)
    images = best.images or 0.0
    rate = best.ratio.median * step.model.median if best.ratio else best.rate.median  # in turns: the machine drifts
    now, then = step.images / step.model.median, images / rate
    most = min(now, (step.length - step.busy) * step.images)
    return min(most, max(0.0, now - (then - now) / (images - step.images) * step.images))


def stalls(record: Record, step: Step) -> dict[str, float]:
    """Seconds of a step in which computing phases did not compute; {} if unknown.

    Waiting for a core is not a stall, nor is waiting for other threads (``held``), or for one of torch's that waits for
    a core itself. A host may wait while its GPU works.
    """
    delayed, idle = record.number("machine", "delayed"), record.number("machine", "idle")
    if idle is None or (delayed is None and idle <= IDLE):
        return {}
    # A thread whose core the host of this virtual machine has taken seems to run.
    stolen = min(1.0, record.amount("machine", "stolen") / max(0.01, 1 - idle))
    kept_away, on_cpu = (delayed or 0.0) + stolen, record.on_cpu
    # The torch threads that compute with the main one. If no core is idle, it may sleep until another gets one.
    together = record.count("threads") or 1 if on_cpu and idle > IDLE and not taken(record) else 1
    idle_seconds, beside, waiting = {}, sum(cores for _, cores in threads_beside(record)), held(record, step)
    elsewhere = aside(record)
    for phase in COMPUTING:
        used, seconds = record.number("cores_used", phase), record.seconds(phase)
        if used is None or used < 0:
            continue
        main = min(used, record.amount("main_used", phase))
        awake = main + max(0.0, used - beside - together * main)  # others may compute while the main thread waits
        if awake + kept_away * min(2, together) < AWAKE:
            idle_there = seconds * (1 - awake - kept_away)
            idle_seconds[phase] = max(0.0, idle_there - waiting.get(phase, 0.0) - elsewhere[phase])
    if not on_cpu:
        unused, total = (step.length - step.busy) * step.images, sum(idle_seconds.values())
        idle_seconds = {phase: seconds * min(1.0, unused / total) for phase, seconds in idle_seconds.items() if total}
    return idle_seconds


def around_update(record: Record, step: Step) -> float:
    """Seconds of a step in a loop's own code after the backward pass, but for the update; 0 if few, or on a GPU.

    Such as logging, metrics, clipping. Not what waits there, runs in other libraries, or is computed for nothing.
    """
    if not record.setting("loop") or not record.on_cpu:
        return 0.0
    apart = [aside(record), stalls(record, step), held(record, step), dict([uneven(record, step)])]
    spent = record.seconds("other") - sum(one.get("other", 0.0) for one in apart)
    spent -= sum(seconds for phase, seconds in in_libraries(record).values() if phase == "other")
    wasted = ("unused_backward", *(waste.kind for waste in FOR_NOTHING.values()))
    spent -= sum(for_nothing(record, kind, "other") for kind in wasted)
    return spent if spent >= OPTIMIZER_SHARE * step.seconds else 0.0


def held(record: Record, step: Step) -> dict[str, float]:
    """Seconds of each phase in which training's thread waits while other threads of its process compute; {} if few.

    A thread that runs Python holds the interpreter, which training needs for each operation, so training waits in all
    phases alike. A phase that waits far more than the others has another reason.
    """
    beside, used = sum(cores for _, cores in threads_beside(record)), record.mapping("main_used")
    if beside < BESIDE:
        return {}
    on_cpu, others = record.on_cpu, taken(record)
    phases = [phase for phase in PHASES if on_cpu or phase != "backward"]  # in which a GPU's host waits for its engine
    spent = {
        phase: record.seconds(phase)
        for phase in (*phases, *(["data_wait"] if not step.workers else []))
        if as_number(used.get(phase)) is not None
    }
    shares = {phase: max(0.0, 1 - amount(used[phase]) - others) / (1 - others) for phase in spent}
    ranks = aside(record)  # waits for other ranks are no waits for this process's threads
    slept = {phase: max(0.0, shares[phase] * seconds - ranks[phase]) for phase, seconds in spent.items()}
    spent = {phase: max(0.0, seconds - ranks[phase]) for phase, seconds in spent.items()}
    shares = {phase: slept[phase] / seconds if seconds else 0.0 for phase, seconds in spent.items()}
    waits = {}
    for phase, seconds in spent.items():
        elsewhere = sum(spent.values()) - seconds
        level = sum(shares[one] * spent[one] for one in spent if one != phase) / elsewhere if elsewhere > 0 else 1.0
        waits[phase] = seconds * min(shares[phase], ALIKE * level)
    most = min(beside * step.seconds, step.spare) / max(sum(waits.values()), 1e-9)
    return {phase: seconds * min(1.0, most) for phase, seconds in waits.items() if seconds > 0}


def lonely(record: Record) -> dict[str, float]:
    """Seconds of each computing phase in which only one of torch's threads computes; {} on a GPU.

    While torch's threads work together, all of them compute; time that only the main one computes is serial.
    """
    if not record.on_cpu or (threads := cores_to_compute(record)) < 2:
        return {}
    beside, alone_seconds = sum(cores for _, cores in threads_beside(record)), {}
    quarters, growing = record.items("quarters", "seconds"), record.text("quarters", "phase")
    at_first, elsewhere = as_number(quarters[0]) if quarters else None, aside(record)
    shares, seconds = dict[str, float](), {name: record.seconds(name) for name in PLACES}
    for phase in PLACES:
        used, main = record.number("cores_used", phase), record.number("main_used", phase)
        if used is not None and main is not None and main >= ALONE:
            shares[phase] = 1 - max(0.0, used - main - beside) / ((threads - 1) * main)
    for phase, serial in shares.items():
        others = [name for name in shares if name != phase]
        alone = sum(shares[name] * seconds[name] for name in others)
        far_more = CONTRAST * alone <= serial * sum(seconds[name] for name in others) > 0
        if serial >= SERIAL or (serial >= MORE_SERIAL and far_more):
            alone_seconds[phase] = serial * max(0.0, seconds[phase] - elsewhere[phase])
            if phase == growing and at_first is not None:  # its growth belongs to ``slowing_down``
                grown = max(0.0, record.seconds("total") - at_first)
                alone_seconds[phase] = max(0.0, alone_seconds[phase] - grown)
    return alone_seconds


def cores_to_compute(record: Record) -> float:
    """The number of cores that a rank's threads can use."""
    return min(record.count("threads") or 1, cores_of_a_rank(record) or 1)


def _parts(record: Record, step: Step) -> Iterator[Part]:
    """All parts except other processes and the rest."""
    elsewhere, exchange = aside(record), record.amount("ranks", "first", "exchange")
    odd, extra = uneven(record, step)
    yield Part("uneven_steps", "", "unusually long steps", extra)
    exchange = min(exchange, sum(elsewhere.values()))
    who = f"waiting for {'slow' if record.text('ranks', 'pattern') else 'other'} ranks"
    yield Part("straggler", "", who, sum(elsewhere.values()) - exchange)
    yield Part("exchange", "", "exchanging gradients", exchange)
    waiting, anew = held(record, step), restarts(record, step)
    yield Part("background_thread", "", "waiting for other threads of this process", sum(waiting.values()))

    def phase(name: str) -> float:
        spent = record.seconds(name) if name in COMPUTING else spent_in(record, step, name)
        spent -= waiting.get(name, 0.0) + elsewhere[name]
        return max(0.0, spent - (extra if odd == name else 0.0) - anew.phases.get(name, 0.0))

    wait = step.waiting * step.length * step.images
    started = min(wait, anew.wait)
    yield Part("workers_restart", "", "restarting workers", started + anew.computing + anew.between)
    yield Part("epoch_start", "", "waiting where an epoch begins", begun := epoch_starts(record, step))
    others = (extra if odd == "data_wait" else 0.0) + waiting.get("data_wait", 0.0) + elsewhere["data_wait"]
    yield from (wasted := _wasted(record, rest := max(0.0, wait - started - begun - others), "data_wait"))
    rest -= sum(part.seconds for part in wasted)
    stored = storage_cause(record, step)
    crowd = not stored and lack_of_cores(record, step)
    name = "waiting for cores that workers take" if crowd else f"waiting for {'the storage' if stored else 'data'}"
    needless = 0.0 if stored else rest * needless_threads(record)
    yield Part("oversubscription", "", "waiting for workers of too many threads", needless)
    yield Part("workers_hurt" if crowd else stored or "loader", "", name, rest - needless)
    on_cpu = record.on_cpu
    batches = phase("transfer") + (phase("prepare") if on_cpu else 0.0)
    yield from (wasted := _wasted(record, batches, "transfer", "prepare"))
    batches -= sum(part.seconds for part in wasted)
    yield Part("transfer", "", "scaling and augmenting" if on_cpu else "copying to the device", batches)
    callbacks = record.seconds("callbacks")
    lost = record.amount("ranks", "first", "waits", "callbacks")
    idle = waits_for_gpu(record, "callbacks")  # is of no callback: ``synchronisation`` tells what that costs
    free = 1 - min(1.0, (waiting.get("callbacks", 0.0) + lost + idle) / callbacks) if callbacks else 1.0
    for hook in hooks(record):
        owns = record.text("ranks", "owner") in [f"{OWNED}{name}" for name in hook.names]
        theirs = elsewhere["callbacks"] - lost if owns else 0.0
        yield Part(hook.cause, hook.name, hook.name, hook.mean * free - theirs)
    for cause, gap, name in (("validation",) * 3, ("epoch_checkpoint", "checkpoints", "saving checkpoints")):
        yield Part(cause, "", name, max(0.0, record.amount("between_seconds", gap)))
    for name, seconds in after_steps(record).items():
        rest = seconds - (0.0 if name else anew.between)
        yield Part("between", name, f"{name}, between epochs" if name else "between epochs", rest)
    yield Part("optimizer", "", "the update", update := phase("optimizer"))
    spent = {name: phase(name) for name in PLACES}
    yield from _of_phases(record, step, spent, update, locked=bool(waiting))


def _of_phases(record: Record, step: Step, spent: dict[str, float], update: float, *, locked: bool) -> Iterator[Part]:
    """Parts of the computing phases, which take so many seconds beside an ``update``; ``locked`` as in `parts_seen`."""
    stalled = stalls(record, step)
    for name, seconds in stalled.items():
        yield Part("stalled", name, f"idle in {COMPUTING[name]}", seconds)
    garbage = garbage_seconds(record)
    yield Part("garbage_collection", "", "Python's garbage collection", garbage)
    computing = max(0.0, sum(spent[name] for name in COMPUTING) - sum(stalled.values()) - garbage)
    left = {name: max(0.0, spent[name] - stalled.get(name, 0.0)) for name in COMPUTING}
    yield Part("loop_code", "", "code around the update", around := min(around_update(record, step), left["other"]))
    left["other"], computing = left["other"] - around, max(0.0, computing - around)
    places = {name: place for name, place in COMPUTING.items() if not (around and name == "other")}
    for cause, subject, name, at, seconds in parts_seen(record, places, locked=locked):
        yield Part(cause, subject, name, here := min(seconds, left[at], computing))
        left[at], computing = left[at] - here, computing - here
    fixed = min(fixed_cost(record, step) - update - sum(stalled.values()) - garbage, computing)
    # What is wasted has a cause of its own.
    fixed = max(0.0, fixed - sum(for_nothing(record, kind, *COMPUTING) for kind in WHATEVER_SIZE))
    yield Part("small_batch", "", "fixed cost of each step", fixed)
    alone = {name: min(seconds, left.get(name, spent[name])) for name, seconds in lonely(record).items()}
    yield from _of_computing(record, step, computing - fixed, fixed, alone)


def _of_computing(
    record: Record, step: Step, computing: float, fixed: float, alone: dict[str, float]
) -> Iterator[Part]:
    """Parts of so many seconds of computing beside the ``fixed`` cost of a step; ``alone``: those of one thread."""
    yield Part("padding", "", "computing on padding", empty := min(padded(record), computing))
    unused = min(for_gradients(record), rest := computing - empty)
    yield Part("unused_gradients", "", "gradients that nothing uses", unused)
    rest -= unused
    yield from (wasted := _wasted(record, rest, *COMPUTING))
    looped = sum(part.seconds for part in wasted if part.cause == "unbatched_loop")  # of which most are fixed costs
    rest -= sum(part.seconds for part in wasted)
    operations = min(max(0.0, many_operations(record, step)[1] - fixed - looped), rest)
    yield Part("small_operations", "", "fixed cost of each operation", operations)
    rest -= operations
    for cause, (key, name) in TRIED.items():
        yield Part(cause, "", name, saved := min(saved_by(record, step, key), rest))
        rest -= saved
    yield Part("threads", "", "cores on which no thread computes", missing := rest * without_threads(record))
    yield Part("upsampled", "", "computing on enlarged pixels", min(made_up(record, step), rest - missing))
    # Less the fixed costs, which are on one thread too.
    costs = garbage_seconds(record) + fixed + operations + looped
    left = max(0.0, 1 - costs / total) if (total := sum(alone.values())) else 0.0
    for name, seconds in alone.items():
        lost = seconds * left * (1 - 1 / cores_to_compute(record))
        yield Part("single_thread", name, f"cores idle during {PLACES[name]}", lost)


def _wasted(record: Record, most: float, *phases: str) -> list[Part]:
    """What of phases that take so many seconds is computed for nothing, by cause."""
    parts = []
    for cause, waste in FOR_NOTHING.items():
        parts.append(Part(cause, "", waste.name, seconds := min(for_nothing(record, waste.kind, *phases), most)))
        most -= seconds
    return parts


def garbage_seconds(record: Record) -> float:
    """Per mean step, within its phases; 0 for the one or two collections that every process has when it starts."""
    if (record.count("garbage_steps") or FEWEST) < FEWEST:
        return 0.0
    return min(record.amount("garbage_seconds"), record.seconds("total"))


def after_steps(record: Record) -> dict[str, float]:
    """Seconds per step between steps, without validation and checkpoints, by callback; the rest under ''."""
    whole = max(0.0, record.amount("between_seconds", "between"))
    by_owner: dict[str, float] = {}
    for entry in record.items("after"):
        if isinstance(entry, dict) and isinstance(name := entry.get("name"), str):
            seconds = min(max(0.0, amount(entry.get("mean"))), whole - sum(by_owner.values()))
            title = re.sub(r" \d+$", "", name)
            by_owner[title] = by_owner.get(title, 0.0) + seconds
    return by_owner | {"": max(0.0, whole - sum(by_owner.values()))}
