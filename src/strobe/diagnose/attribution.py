"""Where the seconds of a mean step go: parts that add up, each with the cause that a finding about it would have."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from strobe.diagnose.predict import Step
from strobe.diagnose.symptoms import FAR_BEYOND, SIZE, enlarged, fitting_size, restarts
from strobe.records.run import Record, as_number

OPTIMIZER_SHARE = 0.1  # of the step, from here on an update is looked at
IDLE = 0.15  # of the cores' time: with less of it to spare, a phase may have waited for a core
TAKEN, MOST_TAKEN = 0.1, 0.95  # of the cores' time, and of training's: from here on it is notable, and no more
SLEEPING = 0.5  # cores: who computes uses one, and who uses less waits for something
FEWEST, FEW = 3, 4  # steps that are far longer than others; of so many at most one, else it is their way
COMPUTING = {"forward": "the forward pass", "backward": "the backward pass", "other": "outside all phases"}


@dataclass(frozen=True)
class Part:
    """A share of a mean step, and of what lies between it and the next one.

    Attributes:
        cause: as of a finding; ``computing`` is what a perfect run does too, as far as anybody has measured.
        subject: of ``callback``, ``logging`` and ``checkpoint`` the class, of ``stalled`` the phase; else empty.
        name: what a person reads.
        seconds: of a step.
        share: of training.
    """

    cause: str
    subject: str
    name: str
    seconds: float
    share: float = 0.0


@dataclass(frozen=True)
class Hook:
    """A callback, logger or module: seconds of a mean step, of its longest one, steps in which it did something.

    All instances of one class are one; ``names`` are theirs.
    """

    cause: str  # callback | logging | checkpoint
    name: str
    names: tuple[str, ...]
    kind: str
    mean: float
    longest: float
    calls: float


def attribution(record: Record, step: Step) -> list[Part]:
    """The parts of a step, the largest first; together they are all of it and of what lies behind it."""
    total = step.total * step.images
    parts = [part for part in _parts(record, step) if part.seconds > 0]
    excess = sum(part.seconds for part in parts) / total
    stretched = 1 - taken(record)  # by other processes, as all the rest of the step alike
    parts = [replace(part, seconds=part.seconds * stretched / max(1.0, excess)) for part in parts]
    if stretched < 1:
        parts.append(Part("shared_machine", "", "other processes on these cores", total * (1 - stretched)))
    rest = max(0.0, total - sum(part.seconds for part in parts))
    parts.append(Part("computing", "", "computing", rest))
    return sorted((replace(part, share=part.seconds / total) for part in parts), key=lambda part: -part.seconds)


def taken(record: Record, *part: str) -> float:
    """The share of its time that training waited for cores on which others computed; 0 where that is not notable.

    Its main thread tells how long it stood ready to run (``delayed``). What sleeps loses nothing to others. ``part`` of
    the record: ``ceilings`` for the time in which these were measured.
    """
    names = ("others", "stolen", "delayed")
    others, stolen, delayed = (record.number(*part, "machine", name) or 0.0 for name in names)
    return min(delayed, MOST_TAKEN) if others + stolen >= TAKEN <= delayed else 0.0


def hooks(record: Record) -> list[Hook]:
    """What runs beside each step, the classes that take most of it first."""
    added, found = added_callbacks(record), defaultdict[tuple[str, str], list[tuple[str, str, list[float]]]](list)
    for entry in record.items("callbacks"):
        if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str):
            continue
        kind, title = str(entry.get("kind")), re.sub(r" \d+$", "", name)
        mean, longest, calls = (max(0.0, as_number(entry.get(key)) or 0.0) for key in ("mean", "longest", "calls"))
        # What ``checkpoint`` configures, and no callback of the user's own with such a name.
        saves = title in ("Checkpoints", "ModelCheckpoint") and name not in added
        cause = "logging" if kind == "logger" else "checkpoint" if saves else "callback"
        found[cause, title].append((name, kind, [mean, longest or mean, calls]))
    merged = []
    for (cause, title), entries in found.items():
        names, kinds, figures = zip(*entries, strict=True)
        means, longest_ones, counts = zip(*figures, strict=True)
        merged.append(Hook(cause, title, names, kinds[0], sum(means), sum(longest_ones), max(counts)))
    return sorted(merged, key=lambda hook: -hook.mean)


def fixed_cost(record: Record, step: Step) -> float:
    """Seconds of computing a step that a batch costs however small it is, by the rates at two sizes; 0 if unknown."""
    larger = [entry for entry in record.alternatives("model") if entry.changes.keys() == {"data.batch_size"}]
    if step.model is None or not (larger := [one for one in larger if one.images and one.images > step.images]):
        return 0.0
    best = max(larger, key=lambda one: one.rate.median)
    images = best.images or 0.0
    now, then = step.images / step.model.median, images / best.rate.median
    return min(now, max(0.0, now - (then - now) / (images - step.images) * step.images))


def made_up(record: Record, step: Step) -> float:
    """Seconds of computing a step on pixels that the images do not hold: as measured, else by their number."""
    times, smaller = enlarged(record), f"{SIZE}={fitting_size(record)}"
    work = (step.compute - step.per_step) * step.images
    rates = [one.rate.median for one in record.alternatives("model") if one.overrides == (smaller,)]
    if times < FAR_BEYOND:
        return 0.0
    return work * max(0.0, 1 - step.model.median / rates[0] if rates and step.model else 1 - 1 / times)


def stalls(record: Record) -> dict[str, float]:
    """Seconds of a step in which computing phases computed nothing; {} on a GPU, and where nobody knows.

    What training stood ready for, without a core, is no stall.
    """
    delayed, idle = record.number("machine", "delayed"), record.number("machine", "idle")
    if record.text("accelerator") != "cpu" or idle is None or (delayed is None and idle <= IDLE):
        return {}
    found = {}
    for phase in COMPUTING:
        used, seconds = record.number("cores_used", phase), record.number("step_seconds", phase) or 0.0
        if used is not None and 0 <= used < SLEEPING:
            found[phase] = seconds * max(0.0, 1 - used - (delayed or 0.0))
    return found


def uneven(record: Record, step: Step) -> tuple[str, float]:
    """The phase of what makes a few steps far longer than the others, and what that costs a mean step, in seconds.

    Of callbacks it is told by their names. That workers are waited for once in so many steps as there are of them is
    their usual way.
    """
    phase, long = record.text("uneven", "phase") or "", record.number("uneven", "steps") or 0.0
    measured = record.number("steps", "measured") or 0.0
    usual = phase == "data_wait" and step.workers > 0 and measured <= FEW * step.workers * long
    if taken(record) and not record.items("uneven", "files", "slow"):  # which explains it
        return "", 0.0
    anew = phase == "data_wait" and restarts(record, step) is not None
    if phase in ("", "callbacks") or long < FEWEST or measured < FEW * long or usual or anew:
        return "", 0.0
    return phase, min(record.number("uneven", "extra_seconds") or 0.0, record.number("step_seconds", phase) or 0.0)


def _parts(record: Record, step: Step) -> Iterator[Part]:
    """All but what is stretched, and what is left."""
    odd, extra = uneven(record, step)
    yield Part("uneven_steps", "", "steps far longer than others", extra)

    def phase(name: str) -> float:
        return max(0.0, (record.number("step_seconds", name) or 0.0) - (extra if odd == name else 0.0))

    wait, anew = step.waiting * step.length * step.images, restarts(record, step) or 0.0
    yield Part("workers_restart", "", "starting workers anew", min(wait, anew))
    yield Part("loader", "", "waiting for data", max(0.0, wait - anew - (extra if odd == "data_wait" else 0.0)))
    on_cpu = record.text("accelerator") == "cpu"
    yield Part("transfer", "", "scaling and augmenting" if on_cpu else "copying to the device", phase("transfer"))
    for hook in hooks(record):
        yield Part(hook.cause, hook.name, hook.name, hook.mean)
    for cause, gap in (("validation", "validation"), ("epoch_checkpoint", "checkpoints"), ("between", "between")):
        name = {"between": "between epochs", "checkpoints": "saving checkpoints"}.get(gap, gap)
        yield Part(cause, "", name, max(0.0, record.number("between_seconds", gap) or 0.0))
    yield Part("optimizer", "", "the update", update := phase("optimizer"))
    stalled = stalls(record)
    for name, seconds in stalled.items():
        yield Part("stalled", name, f"standing still in {COMPUTING[name]}", seconds)
    computing = sum(phase(name) for name in COMPUTING) - sum(stalled.values())
    fixed = min(max(0.0, fixed_cost(record, step) - update - sum(stalled.values())), max(0.0, computing))
    yield Part("small_batch", "", "fixed cost of each step", fixed)
    yield Part(
        "upsampled", "", "computing on pixels that images do not hold", min(made_up(record, step), computing - fixed)
    )


def class_of(target: object) -> str:
    """The class at the end of a dotted path."""
    return str(target).rpartition(".")[2]


def added_callbacks(record: Record) -> dict[str, str]:
    """Keys below ``callbacks`` by the names that the record has for them: the class, from the second on numbered."""
    names: dict[str, str] = {}
    seen: Counter[str] = Counter()
    added = record.setting("callbacks")
    for key, node in added.items() if isinstance(added, dict) else ():
        name = class_of(node.get("_target_")) if isinstance(node, dict) else ""
        seen[name] += 1
        names[name if seen[name] == 1 else f"{name} {seen[name]}"] = str(key)
    return names
