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
from strobe.diagnose.attribution import COMPUTING, TRIED, attribution
from strobe.diagnose.causes import AT_ENDS, LOST, PER_STEP, TIE, UNATTRIBUTED, in_order, share_lost, strongest
from strobe.diagnose.cores import TAKERS, taken, waits_for_cores
from strobe.diagnose.fetching import CAUSES as FETCHING
from strobe.diagnose.foreign import in_words, is_foreign, spoken
from strobe.diagnose.hooks import hooks
from strobe.diagnose.lines import with_line
from strobe.diagnose.predict import NOTABLE, Step, saved_by, step_of
from strobe.diagnose.promise import bound, gain, is_measured, most_of, uncertain, with_uncertain
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
from strobe.overrides import applied, command_of, key_of, split
from strobe.present.format import as_fast, counted, duration, inside, listed, percent
from strobe.present.format import rate as figure
from strobe.records.run import Record, rate_of
from strobe.traces.evidence import read_evidence
from strobe.traces.rank import Read, read_trace

Rule = Callable[[Record, Step], Finding | list[Finding] | None]
AGAIN = "train longer (max_epochs, max_steps or max_time), until six or more are measured."
CEILINGS = ("loader", "model", "transfer", "joint")
NO_BATCHES = "its loader gives no batches; look at the length of the data set, and at limit_train_batches"
WHERE = ("hydra.run.", "hydra.sweep.")  # only moves a run's files
FEWEST_STEPS = 6  # measured: from here on the smallest and the largest enclose the median 95 times in 100
EVIDENT = 0.25  # of training: with fewer steps, smaller parts are not reported
ALIKE = 1.5  # times the mean: a callback that never takes longer, in each of these few steps, is evident too
MOST_LOST = 0.99  # of training
BEYOND = 1.1  # times the lowest ceiling: the rest is noise
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
    summary["findings"] = [one | {"bound": most_of(one)} for one in (finding.as_dict() for finding in findings)]
    summary["verdict"] = verdict(record, findings)


def efficiency(summary: dict[str, Any]) -> float | None:
    """Images/s of training as a share of the lowest ceiling, at most 1; None if unknown, or if a ceiling is wrong.

    This is the headline rate, with all waiting and the time between steps. The median step may be far faster if only a
    few steps wait long.
    """
    record = Record(summary)
    known, measured = ceiling_rates(record).values(), rate_of(record)
    return min(1.0, measured / min(known)) if measured and known and not too_low(record) else None


def ceiling_rates(record: Record) -> dict[str, float]:
    """Images/s of the ceilings that were measured; ``joint`` where loader and model share cores."""
    rates = {name: record.number("ceilings", name) for name in CEILINGS}
    return {name: value for name, value in rates.items() if value is not None and value > 0}


def is_beyond(record: Record) -> bool:
    """Whether the run was notably faster than a ceiling, though both may be too uncertain to call that too low."""
    return (rate_of(record) or 0.0) > BEYOND * min(ceiling_rates(record).values(), default=math.inf)


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
    shares = _shares(record, step)
    candidates = [
        _completed(finding, record, step, shares) for rule in all_rules() for finding in as_list(rule(record, step))
    ]
    sure = _are_ceilings_sure(record, step)
    findings = in_order(strongest(candidates, shares, sure=sure))
    findings = _beside_each_other(findings, record, step)
    if few := _few(record):
        findings = [replace(one, evidence=f"{one.evidence} {few}") for one in findings if _is_evident(one, record)][:1]
    else:
        findings = _paid_less_often(findings, candidates, sure=sure)
    return findings or [with_uncertain(one, candidates) for one in candidates if one.cause == "nothing"][:1]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every public function that is defined in a module of ``strobe.diagnose.rules``, and each of its ``RULES``."""
    modules = [importlib.import_module(one.name) for one in pkgutil.iter_modules(rules.__path__, f"{rules.__name__}.")]
    functions = [
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    ]
    return (*functions, *(rule for module in modules for rule in getattr(module, "RULES", ())))


def _shares(record: Record, step: Step) -> dict[tuple[str, str], float]:
    """The shares of training that causes take, by cause and subject."""
    shares = defaultdict[tuple[str, str], float](float)
    own = max(1 - MOST_LOST, 1 - sum(waits_for_cores(record, step).values()))
    for part in attribution(record, step):
        gap, apart = AT_ENDS.get(part.cause), part.cause in (*TAKERS, *FETCHING)
        # What does not run waits for no core either: it goes with its share of that waiting.
        share = part.share if apart else min(MOST_LOST, part.share / own)
        shares[part.cause, part.subject] += share * (of_an_epoch(record, gap) if gap else 1.0)
    if not record.on_cpu:  # its host waits in any phase: they do not bound what computing saves
        for cause, (key, _) in TRIED.items():
            shares[cause, ""] = saved_by(record, step, key) / (step.total * step.images)
    return shares


def _completed(finding: Finding, record: Record, step: Step, shares: Mapping[tuple[str, str], float]) -> Finding:
    """The finding in words that fit the run, with the share that it costs, and the line where it does."""
    if is_foreign(record):
        finding = spoken(finding, record, step)
    if finding.lost is None:
        finding = replace(finding, lost=share_lost(finding, shares))
    return with_line(finding, record)


def _are_ceilings_sure(record: Record, step: Step) -> bool:
    """Whether the ceilings hold for this training; a model that slows down has another one after each step."""
    grown = growth(record, step)
    grows = grown is not None and grown.phase in COMPUTING
    return not grows and too_low(record) is None and taken(record, "ceilings") <= 0


def _beside_each_other(findings: list[Finding], record: Record, step: Step) -> list[Finding]:
    """The findings, with what their evidence says only because others are found, or none is."""
    if [one.cause for one in findings] == ["shared_machine"]:
        return [with_line(findings[0], record, longest=True)]
    complete = findings[:1]  # whose limit the verdict tells
    for one in findings[1:]:
        why = _limit(record, step, one)
        limit = f" Fixing it gains less than this share, because {why}." if why else ""
        complete.append(replace(one, evidence=f"{one.evidence}{limit}"))
    return complete


def _paid_less_often(findings: list[Finding], candidates: Sequence[Finding], *, sure: bool) -> list[Finding]:
    """The findings, with a larger batch as a remedy for what each step pays more for than for its own fixed cost."""
    batch = next((one for one in candidates if one.cause == "small_batch"), None)
    payers = [one for one in findings if one.cause in PER_STEP]
    if batch is None or not payers or (batch.lost or 0.0) > (payers[0].lost or 0.0):
        return findings
    helps = sure and batch.predicted_speedup.low > 1
    remedies = (Remedy(batch.advice, batch.overrides, batch.predicted_speedup),) if helps else ()
    return [
        replace(one, remedies=remedies) if one.cause in PER_STEP else one
        for one in findings
        if one.cause != "small_batch"
    ]


def verdict(record: Record, findings: Sequence[Finding]) -> str:
    """One or two sentences for the terminal, the report and TensorBoard."""
    status = record.text("status")
    if not record.number("step_seconds", "total"):
        ended = {"failed": "The run failed", "interrupted": "The run was interrupted"}.get(status or "")
        none = f": {NO_BATCHES}" if record.number("batches_per_epoch") == 0 else ""
        if not ended and not none and set(record.mapping("steps").values()) == {0}:
            none = ": training was ended before its first step"
        return f"{ended} before a step was measured{none}." if ended else f"No step was measured{none}."
    before = f"The run {'was interrupted' if status == 'interrupted' else 'failed'}; until then: "
    begin = before if status in ("failed", "interrupted") else ""
    if not findings:
        return f"{begin}No finding."
    first = findings[0]
    title = inside(first.title, first.subject)
    end = f"{_as_much(findings)}{_alone(record)}{_first_step(record, findings)}"
    if few := _few(record):
        rest = first.evidence if first.cause == "nothing" else f"So far: {title}."
        return f"{begin}{inside(few) if begin else few} {rest}{end}"
    title = title if begin else first.title
    if first.cause == "nothing":
        return f"{begin}{title}: {inside(first.evidence)}{end}"
    gained = gain(first.as_dict())
    if gained and is_measured(first.as_dict()):
        rest = f": training would be {gained} as fast without"
        return f"{begin}{title}{rest}.{end}"
    if most := f"Predicted: {' '.join(first.overrides)} -> {gained}" if gained else bound(first.as_dict()):
        why = f"; no more, because {why}" if (why := _limit(record, step_of(record), first)) else ""
        rest = f" {most}{why}."
    elif first.overrides:
        why = uncertain(first, record.count("steps", "measured") or 0)
        rest = f" Try {' '.join(first.overrides)}: its gain is {why}; a longer run or strobe tune tells."
    else:
        rest = f" {first.advice}"
    return f"{begin}{title}{_ceilings(record)}.{rest}{end}"


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
        or finding.cause in (*UNATTRIBUTED, "shared_machine", "oversubscription")
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
    return f" About as much is lost here: {inside(others[0].title, others[0].subject)}."


def as_list(findings: Finding | list[Finding] | None) -> list[Finding]:
    """What a rule has found, as a list."""
    return [findings] if isinstance(findings, Finding) else findings or []


def _alone(record: Record) -> str:
    """A sentence for a run of several ranks whose waiting for each other was not recorded; else empty."""
    if (record.count("world_size") or 1) < 2 or record.mapping("ranks", "waits"):
        return ""
    if len(record.items("ranks", "ranks")) > 1:
        return " Whether ranks waited for each other is not known: there are too few steps, or they do not show it."
    return " Whether it waited for other ranks is not known: only rank 0 was recorded."


def _ceilings(record: Record) -> str:
    """The measured rate beside the ceilings; empty if these are unknown, wrong, or too uncertain to compare with."""
    if too_low(record) or is_beyond(record):
        return ""
    rates = {name: rate for name in ("loader", "model") if (rate := record.number("ceilings", name))}
    measured, joint = rate_of(record) or 0.0, record.amount("ceilings", "joint")
    known = [f"{name} ceiling {figure(rate)}" for name, rate in rates.items()]
    if measured < joint < min(rates.values(), default=math.inf):  # else it is no limit, or was measured too low
        known.append(f"together at most {figure(joint)}")
    shown = [f"measured {figure(measured)}", *known] if measured else known
    return f" ({', '.join(shown)} {record.text('unit') or 'images'}/s)" if known else ""


def _first_step(record: Record, findings: Sequence[Finding]) -> str:
    """A sentence on a first step that took a notable share of the run; no rate includes it."""
    share, first = start_share(record), record.number("first_step_seconds")
    if share is None or first is None or share < NOTABLE or any(item.cause == "first_step" for item in findings):
        return ""
    longer = duration(first - record.seconds("total"))
    rate = f"{percent(share)} of all step time, which {record.text('unit') or 'images'}/s does not include"
    return f" The first step took {duration(first)}, {longer} longer than usual: {rate}."
