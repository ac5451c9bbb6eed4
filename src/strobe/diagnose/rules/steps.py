"""Steps that differ: a few that take far longer than the others, and steps that get slower and slower, or at once."""

from strobe.diagnose.attribution import IN_WORDS
from strobe.diagnose.cores import fewer_workers, lost_cores
from strobe.diagnose.predict import Step, without
from strobe.diagnose.rules import Finding
from strobe.diagnose.uneven import LOOK_FOR_IT, growth, uneven
from strobe.present.format import counted, duration, percent, size
from strobe.records.run import Figure, Record, amount, as_number

UNEVEN = 0.05  # of the steps' time: less is normal on a shared machine
_PHASES = IN_WORDS | {"transfer": "copying, scaling and augmenting"}
MOST_NAMED = 3
SLOWER = 0.9  # times the clock at the start
LARGE = 3.0  # times the bytes of a typical file
MOSTLY = 0.8  # of the long steps: so many begin epochs, and that is what they have in common
_FIRST = (
    "Look at what the first step of an epoch does: what runs every so many batches begins with it (index % 10 == 0)"
)
_KEPT = (
    "Look for what grows with each step: losses kept with their graphs, lists, hooks registered again, a growing "
    "model; on a CPU also numbers that decay below 1e-38, with which processors are slow (torch.set_flush_denormal)."
)
_BEGUN = (
    "Look for what begins there: a callback or a schedule, layers that are trained from then on, larger samples; on a "
    "CPU also numbers that decay below 1e-38, with which processors are slow (torch.set_flush_denormal)."
)
_SLOWER = (
    "All parts of a step grew: look for what began to use the machine then, and at its cooling and power limits; or "
    "for samples that are larger from there on."
)
_GROWING = {
    "data_wait": "Look for loader workers that keep what they load, and for a cache or a disk that fills up.",
    "callbacks": "Look for a callback or a metric that keeps everything it has seen.",
}


def uneven_steps(record: Record, step: Step) -> Finding | None:
    """A few steps take far longer than the others, and together a notable part of training."""
    phase, extra = uneven(record, step)
    if extra < UNEVEN * step.seconds:
        return None
    long, usual = (record.amount("uneven", f"{name}_seconds") for name in ("long", "usual"))
    count, measured = record.number("uneven", "steps") or 1.0, record.amount("steps", "measured")
    files, advice = "", LOOK_FOR_IT
    if phase == "data_wait":
        files, advice = _files(record)
    if phase != "data_wait" and record.amount("uneven", "begin_epochs") >= MOSTLY * count:
        beside = ", and loader workers fill their queues beside it" * bool(step.workers)
        files, advice = " They begin epochs.", f"{_FIRST}{beside}. Do it less often, or make it cheaper."
    if phase == "data_wait" and not record.items("uneven", "files", "slow") and (lost := lost_cores(record, step)):
        files, advice = f" {lost}", f"{fewer_workers(step)}{advice}"
    return Finding(
        "uneven_steps",
        f"One step in {measured / count:.0f} takes {long / max(usual, 1e-9):.1f} times as long as the others",
        f"{count:.0f} of {measured:,.0f} steps take {duration(long)}, a typical one {duration(usual)}. The extra time "
        f"is {percent(extra / step.seconds)} of all step time, most of it {_PHASES[phase]}.{files}",
        advice,
        without(step, wait=extra) if phase == "data_wait" else without(step, compute=extra),
    )


def _files(record: Record) -> tuple[str, str]:
    """A sentence on the files of late batches, which were read again after the run, and the advice."""
    count, usual = (record.amount("uneven", "files", name) for name in ("read", "usual_seconds"))
    if not count:
        return (
            "",
            "Look at what these batches read: large files, a slow disk or server. Prefetching more batches helps.",
        )
    slow = record.entries("uneven", "files", "slow")
    if not slow:
        sentence = f" None of {count:.0f} of their files, read again after training, was slow: the storage stalled."
        return sentence, "Keep the files on a faster disk, or let workers prefetch more batches."
    named = [
        f"{one.get('path')} ({_read(as_number(one.get('seconds')), as_number(one.get('bytes')))})"
        for one in slow[:MOST_NAMED]
    ]
    others = f" and {counted(len(slow) - MOST_NAMED, 'other')}" if len(slow) > MOST_NAMED else ""
    sentence = f" Read again after training, these of {count:.0f} files take far longer than a typical one "
    sentence += f"({_read(usual, record.number('uneven', 'files', 'usual_bytes'))}): {', '.join(named)}{others}."
    large = amount(slow[0].get("bytes")) > LARGE * record.amount("uneven", "files", "usual_bytes")
    what = "Make these files smaller" if large else "Check where these files are stored and how they are encoded"
    return sentence, f"{what}, leave them out, or let workers prefetch more batches."


def _slowed(record: Record) -> str:
    """A sentence on a processor that became slower; empty if it did not, or if unknown."""
    throttles = record.amount("machine", "throttles")
    before, after = (*record.amounts("machine", "hertz"), 0.0, 0.0)[:2]
    sentences = f" The cores overheated {throttles:.0f} times, and slowed down." if throttles else ""
    if before and after and after < SLOWER * before:
        sentences += f" The cores' clock fell from {before / 1e9:.2f} to {after / 1e9:.2f} GHz."
    return sentences


def _read(seconds: float | None, count: float | None) -> str:
    return f"{duration(seconds or 0.0)}, {size(count or 0.0)}"


def slowing_down(record: Record, step: Step) -> Finding | None:
    """Steps get slower from quarter to quarter of the run, or at once, on a machine that nobody shares."""
    if (grown := growth(record, step)) is None or grown.phase not in _PHASES:
        return None
    quarters, slowed = grown.steps, _slowed(record)
    times, lengths = quarters[-1] / quarters[0], [duration(value) for value in quarters]
    if grown.since is None:
        start = max(quarters[0] - max(0.0, quarters[1] - quarters[0]) / 2, quarters[0] / 2)  # of the first quarter
        title = f"Steps get slower: in the last quarter of the run they take {times:.1f} times as long"
        evidence = f"A typical step takes {', '.join(lengths)} in the quarters of the run; "
        advice = _GROWING.get(grown.phase, _KEPT)
    else:
        start, title = quarters[0], f"From step {grown.since:,} on, steps take {times:.1f} times as long"
        evidence = f"A typical step takes {lengths[0]} before it, and {lengths[1]} from there to the end of the run; "
        advice = _BEGUN if grown.alone else _SLOWER
    most = step.seconds / min(step.seconds, start)
    return Finding(
        "slowing_down",
        title,
        f"{evidence}most of the growth is {_PHASES[grown.phase]}.{slowed}",
        "Look at the machine's cooling and power limits, and measure again." if slowed else advice,
        Figure(most**0.5, 1.0, most),
        lost=1 - 1 / most,
    )
