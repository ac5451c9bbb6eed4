"""Applies all rules: ranked findings, the verdict, and the command to copy."""

import importlib
import inspect
import math
import pkgutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from strobe.diagnose import rules
from strobe.diagnose.attribution import COMPUTING, TRIED, attribution, hooks
from strobe.diagnose.cores import taken, taken_by_workers
from strobe.diagnose.fetching import CAUSES as FETCHING
from strobe.diagnose.foreign import in_words, is_foreign, spoken
from strobe.diagnose.lines import with_line
from strobe.diagnose.predict import NOTABLE, WORTH, Step, saved_by, step_of
from strobe.diagnose.promise import ENDANGERS, bound, gain, is_measured, uncertain, with_uncertain
from strobe.diagnose.rules import Finding, Remedy
from strobe.diagnose.symptoms import (
    ACCUMULATE,
    BATCH_SIZE,
    accumulated,
    of_an_epoch,
    scaling,
    start_share,
    too_low,
)
from strobe.diagnose.uneven import growth
from strobe.diagnose.wasted import FOR_NOTHING
from strobe.overrides import applied, command_of, key_of, split
from strobe.present.format import as_fast, counted, duration, inside, listed, percent
from strobe.present.format import rate as figure
from strobe.records.run import Record, rate_of
from strobe.traces.evidence import read_evidence
from strobe.traces.rank import Read, read_trace

Rule = Callable[[Record, Step], Finding | list[Finding] | None]
AGAIN = "raise the trainer's max_time or max_steps until six or more are measured."
CEILINGS = ("loader", "model", "transfer", "joint")

# A symptom, the cause that explains it if that costs more, and why.
EXPLAINED = (
    ("small_batch", "loader", "larger batches do not load faster"),
    ("launch_bound", "loader", "the device idles because it waits for data"),
    ("loader", "workers_hurt", "workers without a core load slowly"),
    ("threads", "workers_hurt", "there are too many threads because the workers take their cores"),
    ("small_batch", "threads", "threads without a core slow each kernel, short ones most"),
    ("memory_layout", "threads", "the layouts were compared on threads without a core"),
    ("optimizer", "threads", "an update is many short kernels, which threads without a core slow most"),
    ("workers_hurt", "threads", "the workers find no cores because the threads take them"),
    ("single_thread", "small_batch", "a step of short operations, each of one thread, whatever its size"),
    ("single_thread", "threads", "threads without a core slow all but one"),
    ("single_thread", "memory_layout", "in the other layout the operations have parallel kernels"),
    *(
        ("single_thread", cause, "it is what its one thread does")
        for cause in ("small_operations", "library_call", "python_code", "unbatched_loop")
    ),
    *((cause, "unbatched_loop", "it is of the loop") for cause in ("small_operations", "python_code")),
    ("library_call", "stalled", "it sleeps, or waits, there"),
    ("small_operations", "small_batch", "larger batches make fewer operations per image"),
    ("optimizer", "background_thread", "an update is many short calls, each of which waits for Python's lock"),
    ("memory_layout", "background_thread", "the layouts were compared while it computed"),
    ("launch_bound", "stalled", "the host launches nothing while it waits"),
    ("launch_bound", "small_batch", "larger batches launch fewer kernels per image"),
    ("launch_bound", "synchronisation", "the device idles because the host waits for it"),
    ("small_batch", "synchronisation", "the device idles because the host waits for it"),
    ("slowing_down", "straggler", "they wait longer and longer for a slow rank"),
    ("uneven_steps", "straggler", "in long ones they wait for a slow rank"),
    ("launch_bound", "straggler", "the device idles because it waits for another rank"),
    ("synchronisation", "callback", "the callback is what waits for the device"),
    ("synchronisation", "logging", "the logger is what waits for the device"),
)

NO_BATCHES = "its loader gives no batches; look at the length of the data set, and at limit_train_batches"
WHERE = ("hydra.run.", "hydra.sweep.")  # only moves a run's files
# Time that the run itself lost, as its steps show: a cause, however uncertain the gain of a remedy.
LOST = (
    "straggler",
    *("loader", *FETCHING, "workers_restart", "epoch_start"),
    *("callback", "logging", "checkpoint", "epoch_checkpoint", "validation", "loop_code"),
    *("optimizer", "stalled", "shared_machine", "quota", "synchronisation", "transfer"),
    *("uneven_steps", "slowing_down", "background_thread", "garbage_collection", "library_call", "python_code"),
    *("recomputing", "small_operations", "single_thread", "between", "padding", "upsampled", "swapping"),
    *("unused_gradients", *FOR_NOTHING),
)
AT_ENDS = {  # of epochs: a run without a whole epoch overstates them
    "validation": "validation",
    "epoch_checkpoint": "checkpoints",
    "between": "between",
}
UNATTRIBUTED = ("quota", "swapping", "synchronisation", "slowing_down")  # part of the other parts
PER_STEP = ("optimizer", "stalled", "callback", "loop_code", "logging", "checkpoint")  # a larger batch pays less often
TIE = 0.15  # of the largest share: smaller differences vary from run to run
FEWEST_STEPS = 6  # measured: from here on the smallest and the largest enclose the median 95 times in 100
EVIDENT = 0.25  # of training: with fewer steps, smaller parts are not reported
ALIKE = 1.5  # times the mean: a callback that never takes longer, in each of these few steps, is evident too
MOST_LOST = 0.99  # of training
FAR_BELOW = 2.0  # times as much as it gains would be gained, if all of its share of the step could be


def conclude(summary: dict[str, Any], config: dict[str, Any], run_dir: Path, read: Read = read_trace) -> None:
    """Compute anew what follows from the record and the run's traces, which ``read`` reads.

    That is ``efficiency``, ``trace_evidence``, ``attribution``, ``findings`` and ``verdict``.
    """
    summary["efficiency"] = efficiency(summary)
    record = Record(summary, config)
    paths = [run_dir / trace for trace in record.items("traces") if isinstance(trace, str)]
    if evidence := read_evidence([path for path in paths if path.is_file()], read):
        summary["trace_evidence"] = evidence
    step = step_of(record)
    parts = attribution(record, step) if step else []
    names = [in_words(part.name, record) if is_foreign(record) else part.name for part in parts]
    summary["attribution"] = [
        {"cause": part.cause, "name": name, "seconds": part.seconds, "share": part.share}
        for part, name in zip(parts, names, strict=True)
    ]
    findings = diagnose(record)
    summary["findings"] = [finding.as_dict() for finding in findings]
    summary["verdict"] = verdict(record, findings)


def efficiency(summary: dict[str, Any]) -> float | None:
    """Images/s of training as a share of the lowest ceiling, at most 1; None if unknown, or if a ceiling is wrong.

    This is the headline rate, with all waiting and the time between steps. The median step may be far faster if only a
    few steps wait long.
    """
    record = Record(summary)
    known = [rate for name in CEILINGS if (rate := record.number("ceilings", name))]
    measured = rate_of(record)
    return min(1.0, measured / min(known)) if measured and known and not too_low(record) else None


def diagnose(record: Record) -> list[Finding]:
    """The findings: time that a perfect run would not spend, by cause, the largest first; else ``nothing``.

    A finding is left out if less than 3% is predicted, if there may be no gain (unless the run itself lost the
    time, ``LOST``), if it depends on a wrong ceiling, or if one that costs more explains it (``EXPLAINED``) or
    changes the same keys. If each step pays more for something else (``PER_STEP``) than for its own fixed cost, a
    larger batch is a remedy for that. A run without a measured step has no findings; with fewer than ``FEWEST_STEPS``
    it has only the largest part, if that is evident.
    """
    if (step := step_of(record)) is None:
        return []
    shares = defaultdict[tuple[str, str], float](float)
    own = max(1 - MOST_LOST, 1 - taken(record) - taken_by_workers(record, step))
    for part in attribution(record, step):
        gap, apart = AT_ENDS.get(part.cause), part.cause in ("shared_machine", "workers_hurt", *FETCHING)
        # What does not run waits for no core either: it goes with its share of that waiting.
        share = part.share if apart else min(MOST_LOST, part.share / own)
        shares[part.cause, part.subject] += share * (of_an_epoch(record, gap) if gap else 1.0)
    if record.text("accelerator") != "cpu":  # its host waits in any phase: they do not bound what computing saves
        shares |= {
            (cause, ""): saved_by(record, step, key) / (step.total * step.images) for cause, (key, _) in TRIED.items()
        }
    found = [finding for rule in all_rules() for finding in as_list(rule(record, step))]
    if is_foreign(record):
        found = [spoken(one, record, step) for one in found]
    found = [one if one.lost is not None else replace(one, lost=_lost(one, shares)) for one in found]
    found = [with_line(one, record) for one in found]
    batch = next((finding for finding in found if finding.cause == "small_batch"), None)
    # A model that slows down has no ceiling: each is that of as many steps as it was measured for.
    grows = (grown := growth(record, step)) is not None and grown[1] in COMPUTING
    wrong = grows or too_low(record) is not None or taken(record, "ceilings") > 0
    kept: list[Finding] = []
    for finding in sorted(found, key=lambda one: (-(one.lost or 0.0), -one.predicted_speedup.median, one.cause)):
        rests = wrong and finding.cause not in (*LOST, *ENDANGERS)
        # A finding that is explained explains no other.
        if _helps(finding, shares) and not rests and not any(_covers(stronger, finding) for stronger in kept):
            kept.append(finding)
    if any(one.cause == "straggler" for one in kept):  # which may be most of another cause
        kept = [one for one in kept if (one.lost or 0.0) >= 1 - 1 / WORTH or one.cause == "straggler"]
    kept = _in_order(kept)
    if [one.cause for one in kept] == ["shared_machine"]:
        kept = [with_line(kept[0], record, longest=True)]
    limits = [_limit(record, step, one) for one in kept[1:]]  # the verdict tells that of the first
    kept[1:] = [
        replace(one, evidence=f"{one.evidence} Fixing it gains less than this share, because {why}.") if why else one
        for one, why in zip(kept[1:], limits, strict=True)
    ]
    if few := _few(record):
        kept = [replace(one, evidence=f"{one.evidence} {few}") for one in kept if _is_evident(one, record)][:1]
    if not kept:
        return [with_uncertain(one, found) for one in found if one.cause == "nothing"][:1]
    payers = [one for one in kept if one.cause in PER_STEP]
    if few or batch is None or not payers or (batch.lost or 0.0) > (payers[0].lost or 0.0):
        return kept
    sure = batch.predicted_speedup.low > 1 and not wrong
    remedies = (Remedy(batch.advice, batch.overrides, batch.predicted_speedup),) if sure else ()
    return [replace(one, remedies=remedies) if one in payers else one for one in kept if one is not batch]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every public function that is defined in a module of ``strobe.diagnose.rules``."""
    names = [module.name for module in pkgutil.iter_modules(rules.__path__, f"{rules.__name__}.")]
    functions = [(name, found) for name in names for _, found in inspect.getmembers(importlib.import_module(name))]
    return tuple(
        found
        for name, found in functions
        if inspect.isfunction(found) and found.__module__ == name and not found.__name__.startswith("_")
    )


def verdict(record: Record, findings: Sequence[Finding]) -> str:
    """One or two sentences for the terminal, the report and TensorBoard."""
    status = record.text("status")
    if not record.number("step_seconds", "total"):
        ended = {"failed": "The run failed", "interrupted": "The run was interrupted"}.get(status or "")
        none = f": {NO_BATCHES}" if record.number("batches_per_epoch") == 0 else ""
        return f"{ended} before a step was measured{none}." if ended else f"No step was measured{none}."
    before = f"The run {'was interrupted' if status == 'interrupted' else 'failed'}; until then: "
    begin = before if status in ("failed", "interrupted") else ""
    if not findings:
        return f"{begin}No finding."
    first = findings[0]
    title = inside(first.title, first.subject)
    end = f"{_as_much(findings)}{_alone(record)}{_first_step(record, findings)}"
    if few := _few(record):
        told = first.evidence if first.cause == "nothing" else f"So far: {title}."
        return f"{begin}{inside(few) if begin else few} {told}{end}"
    title = title if begin else first.title
    if first.cause == "nothing":
        return f"{begin}{title}: {inside(first.evidence)}{end}"
    gained = gain(first.as_dict())
    if gained and is_measured(first.as_dict()):
        told = f": training would be {gained} as fast without"
        return f"{begin}{title}{told}.{end}"
    if most := f"Predicted: {' '.join(first.overrides)} -> {gained}" if gained else bound(first.as_dict()):
        why = f"; no more, because {why}" if (why := _limit(record, step_of(record), first)) else ""
        told = f" {most}{why}."
    elif first.overrides:
        why = uncertain(first, record.count("steps", "measured") or 0)
        told = f" Try {' '.join(first.overrides)}: its gain is {why}; a longer run or strobe tune tells."
    else:
        told = f" {first.advice}"
    return f"{begin}{title}{_ceilings(record)}.{told}{end}"


def command(record: Record, overrides: Sequence[str]) -> str:
    """The command that repeats this run with these overrides in place of its own for the same keys.

    If they change the number of images per update, the learning rate follows.
    """
    own = [text for text in record.items("overrides") if isinstance(text, str)]
    size, batches, new = record.whole(BATCH_SIZE) or 0, accumulated(record), dict(map(split, overrides))
    same = size * batches == int(new.get(BATCH_SIZE, size)) * int(new.get(ACCUMULATE, batches))
    changes = overrides if same else (*overrides, *scaling(record))
    return command_of(applied([text for text in own if not key_of(text).startswith(WHERE)], changes))


def _few(record: Record) -> str:
    """A sentence saying that too few steps were measured, and what to do; empty if there are enough."""
    measured = record.count("steps", "measured") or 0
    if measured >= FEWEST_STEPS:
        return ""
    were = "was" if measured == 1 else "were"
    return f"Only {counted(measured, 'step')} {were} measured, too few to be certain: {AGAIN}"


def _is_evident(finding: Finding, record: Record) -> bool:
    """Whether even a few steps show it: they lost the time themselves, and much of it."""
    measured = record.count("steps", "measured") or 0
    own = (one for one in hooks(record) if (one.cause, one.name) == (finding.cause, finding.subject))
    same = any(one.calls >= measured > 1 and one.longest <= ALIKE * one.mean for one in own)
    return finding.cause in LOST and (same or (finding.lost or 0.0) >= EVIDENT)


def _in_order(found: Sequence[Finding]) -> list[Finding]:
    """The largest part first; among about equal parts, those that the steps themselves show, in the order of ``LOST``.

    So a configuration gets the same verdict, though each run measures a little less or more. What the same code costs
    within steps and between epochs counts together.
    """
    lost = defaultdict[tuple[str, str], float](float)
    for one in found:
        lost[_owner(one)] += one.lost or 0.0
    ordered = sorted(found, key=lambda one: (-lost[_owner(one)], -(one.lost or 0.0), one.cause, one.subject))
    equal = [one for one in ordered if lost[_owner(one)] >= (1 - TIE) * lost[_owner(ordered[0])]]
    places = {cause: place for place, cause in enumerate(LOST)}
    equal.sort(key=lambda one: (places.get(one.cause, len(LOST)), one.cause, one.subject))
    return [*equal, *ordered[len(equal) :]]


def _owner(finding: Finding) -> tuple[str, str]:
    """Whose time it is: that of a class, of checkpoints, or else of the cause alone."""
    if finding.cause in ("checkpoint", "epoch_checkpoint"):
        return "checkpoint", ""
    named = finding.cause in ("callback", "logging", "between") and finding.subject
    return ("", finding.subject) if named else (finding.cause, finding.subject)


def _limit(record: Record, step: Step | None, finding: Finding) -> str:
    """Why fixing it gains far less than its share of the step: a clause; empty where it does not, or why is unknown."""
    if step is None or finding.lost is None:
        return ""
    predicted, lost = finding.predicted_speedup.median, min(finding.lost, MOST_LOST)
    within = 1.0 if finding.cause in (*AT_ENDS, "workers_restart") else step.length / step.total
    share = min(MOST_LOST, step.waiting if finding.cause in ("loader", *FETCHING) else lost / within)
    promised = predicted if finding.overrides else max(predicted, 1 / (1 - lost))
    if (
        finding.cause not in LOST
        or finding.cause in (*UNATTRIBUTED, "shared_machine")
        or 1 / (1 - share) - 1 < FAR_BELOW * (promised - 1)
    ):
        return ""
    if finding.overrides:
        shared = finding.cause == "loader" and record.flag("ceilings", "shared_cores")
        return "loader and model share the cores" if shared else ""
    return f"{percent(1 - within)} of training lies between steps" if 1 - within >= NOTABLE else ""


def _as_much(findings: Sequence[Finding]) -> str:
    """A sentence on what costs about as much as the first finding, or is of its kind; empty if there is nothing."""
    first, *others = findings
    alike = [one for one in others if one.cause == first.cause in ("callback", "logging") and one.lost]
    lost = sum(one.lost or 0.0 for one in (first, *alike))
    if alike and (1 - TIE) * lost > (first.lost or 0.0):
        names, most = listed([one.subject for one in alike]), as_fast(1 / (1 - min(MOST_LOST, lost)))
        return f" Together with {names} it is {percent(lost)}; without all of them, training would be up to {most}."
    losses = [one.lost or 0.0 for one in findings[:2]]
    if not others or min(losses) < (1 - TIE) * max(losses):
        return ""
    return f" About as costly: {inside(others[0].title, others[0].subject)}."


def _helps(finding: Finding, shares: Mapping[tuple[str, str], float]) -> bool:
    predicted = finding.predicted_speedup
    observed = finding.cause in ("workers_hurt", "threads") and (finding.cause, finding.subject) in shares
    sure = finding.cause in LOST or observed or predicted.low >= 1
    if finding.cause == "small_batch" and not finding.lost:  # it is faster, but not for a fixed cost: a remedy
        return False
    return finding.cause in ENDANGERS or (finding.cause != "nothing" and predicted.median >= WORTH and sure)


def _lost(finding: Finding, shares: Mapping[tuple[str, str], float]) -> float:
    """The share of training that a cause takes: by attribution, or of what is no part of it, by what its rule saw."""
    known = (finding.cause, finding.subject) in shares
    if (finding.cause in (*LOST, "small_batch", *TRIED) or known) and finding.cause not in UNATTRIBUTED:
        return shares.get((finding.cause, finding.subject), 0.0)
    return max(0.0, 1 - 1 / finding.predicted_speedup.median)


def _covers(stronger: Finding, finding: Finding) -> bool:
    explained = any((finding.cause, stronger.cause) == (symptom, cause) for symptom, cause, _ in EXPLAINED)
    return explained or not set(stronger.overrides).isdisjoint(finding.overrides)


def as_list(found: Finding | list[Finding] | None) -> list[Finding]:
    """What a rule has found, as a list."""
    return [found] if isinstance(found, Finding) else found or []


def _alone(record: Record) -> str:
    """A sentence for a run of several ranks whose waiting for each other was not recorded; else empty."""
    if (record.count("world_size") or 1) < 2 or record.mapping("ranks", "waits"):
        return ""
    if len(record.items("ranks", "ranks")) > 1:
        return " Whether ranks waited for each other is not known: there are too few steps, or they do not show it."
    return " Whether it waited for other ranks is not known: only rank 0 was recorded."


def _ceilings(record: Record) -> str:
    """The measured rate beside the ceilings; empty if these are unknown or wrong."""
    if too_low(record):
        return ""
    rates = {name: rate for name in ("loader", "model") if (rate := record.number("ceilings", name))}
    measured, joint = rate_of(record) or 0.0, record.number("ceilings", "joint") or 0.0
    known = [f"{name} ceiling {figure(rate)}" for name, rate in rates.items()]
    if measured < joint < min(rates.values(), default=math.inf):  # else it is no limit, or was measured too low
        known.append(f"together at most {figure(joint)}")
    given = [f"measured {figure(measured)}", *known] if measured else known
    return f" ({', '.join(given)} {record.text('unit') or 'images'}/s)" if known else ""


def _first_step(record: Record, findings: Sequence[Finding]) -> str:
    """A sentence on a first step that took a notable share of the run; no rate includes it."""
    share, first = start_share(record), record.number("first_step_seconds")
    if share is None or first is None or share < NOTABLE or any(item.cause == "first_step" for item in findings):
        return ""
    rate = f"{record.text('unit') or 'images'}/s"
    return f" The first step took {duration(first)}, {percent(share)} of all step time; {rate} does not include it."
