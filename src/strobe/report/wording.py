"""What a run's record says, in words that the page, the terminal, TensorBoard and pictures share."""

import math
import re
from collections.abc import Mapping
from typing import Any

from strobe.diagnose import rank
from strobe.diagnose.cores import TAKEN, taken
from strobe.diagnose.fetching import stored
from strobe.diagnose.foreign import UNSEEN
from strobe.diagnose.hooks import class_of
from strobe.diagnose.promise import bound, gain
from strobe.diagnose.rank import ceiling_rates, is_beyond
from strobe.diagnose.rules.none import NEAR
from strobe.diagnose.symptoms import all_steps, too_low
from strobe.errors import ConfigError, DataError, StrobeError
from strobe.measure import WIDEST
from strobe.present.format import TIMES, cores, counted, duration, estimate, interval, percent, rate
from strobe.records.run import Record, as_number, rate_of

_MOST_FINDINGS = 3
_NOTABLE = 0.01  # share of the step from which a callback is named
_MOST_CALLBACKS = 3
_VARIED = 2.0  # times the lower end of the interval of the median step; wider ones leave much open
_DRIFTED = 0.05  # apart: a smaller difference is every machine's
_OWN = {kind.__name__ for kind in (StrobeError, ConfigError, DataError)}
_OF_STROBE = re.compile(r"strobe\.(app\.)?model\.")  # networks that a choice names
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^a-z\s])|\n+")
_FIGURES = re.compile(r" \((?!\d[\d.]* to )[^()]*\d[^()]*\)")  # but an interval


def subject(record: Record) -> list[str]:
    """What was trained on what: ``EuroSAT``, ``resnet18``, ``loader skimage``, ``batch 32``, ``2 workers``, ..."""
    workers, batch, world = (record.count(key) for key in ("num_workers", "batch_size", "world_size"))
    loader = record.text("choices", "loader")
    target, name = str(record.setting("model._target_", "")), record.setting("model.name")
    own = [class_of(target)] if target and not _OF_STROBE.match(target) else []
    own += [name] if isinstance(name, str) else []
    parts = [
        record.text("data") or record.text("choices", "data"),
        own[-1] if own else record.text("choices", "model"),
        loader and f"loader {loader}",
        None if batch is None else f"batch {batch}",
        None if workers is None else counted(workers, "worker"),
        f"{world} {TIMES} {record.text('accelerator') or 'device'}" if world else None,
        record.text("precision"),
    ]
    return [part for part in parts if part]


def phase_of(record: Record, name: str) -> str:
    """A phase in words; in a loop whose backward pass was not seen, ``forward`` includes it."""
    if name == "forward" and record.text("settings", "loop") == UNSEEN:
        return "forward and backward"
    return "between steps" if name == "between" else name.replace("_", " ")


def unit_of(record: Record) -> str:
    """The unit of the record's rates: images/s, samples/s, or steps/s if batches had no known size."""
    return f"{record.text('unit') or 'images'}/s"


def verdict(record: Record) -> tuple[str, str]:
    """The verdict's first sentence, without figures in brackets, and the other sentences; empty if there is none.

    Leaves out that too few steps were measured, which ``trust`` says.
    """
    sentences = [sentence for sentence in _SENTENCE.split((record.text("verdict") or "").strip()) if sentence]
    sentences = [sentence for sentence in sentences if rank.AGAIN not in sentence] or sentences
    return (_FIGURES.sub("", sentences[0]), " ".join(sentences[1:])) if sentences else ("", "")


def reason(record: Record) -> str:
    """What ended a run, in one line: the error's name and message, or the message that tells all; empty if unknown."""
    kind, message = (record.text("error", key) or "" for key in ("type", "message"))
    said = message.strip().partition("\n")[0]
    return said if said and is_told(record) else ": ".join(filter(None, (kind, said)))


def is_told(record: Record) -> bool:
    """Whether the message of what ended a run tells all, as Strobe's own errors do, and requests to end."""
    return record.text("error", "type") in _OWN or record.text("status") == "interrupted"


def trust(record: Record) -> tuple[str, str]:
    """How far to trust the run's figures: ``good``, ``fair`` or ``bad``, with a sentence; empty if unknown.

    Without a sentence where the first finding says the same.
    """
    steps, (median, low, high) = record.count("steps", "measured"), estimate_of(record, "images_per_second")
    told = [found.text("cause") for found in entries(record, "findings")][:1] == ["shared_machine"]
    noisy = f"Noisy: {noise}." if (noise := _noise(record)) and not told else ""
    if few := _too_few(record, steps or 0):
        return "bad", f"{few} {noisy}".rstrip()
    if not median or not steps:
        return "", ""
    if noise:
        return "bad", noisy
    if low and high and high > _VARIED * low:
        known = f"{rate(low)} to {rate(high)} {unit_of(record)}"
        return "fair", f"Uneven: the rate of the median step is known no better than {known}."
    if (others := record.number("machine", "others")) is None:
        return "", ""
    measured, used = f"{counted(steps, 'step')} measured", f"other processes used {percent(others)} of the cores"
    shared = f"Shared: {measured} while {used}; training hardly waited for a core."
    return ("good", f"Quiet: {measured}, and {used}.") if others < TAKEN else ("fair", shared)


def _too_few(record: Record, steps: int) -> str:
    """That so many measured steps are not enough, and what to do unless the run failed; empty where they are."""
    failed = record.text("status") == "failed"
    if steps:
        again = f" {rank.AGAIN.capitalize()}" * (not failed)
        return f"Too short: only {counted(steps, 'step')} measured.{again}" * (steps < rank.FEWEST_STEPS)
    if not (count := all_steps(record)):
        return ""
    which = "the only step was" if count == 1 else f"all {count:,.0f} steps were"
    why = "profiled or warm-up" if record.number("steps", "profiled") else "warm-up"
    return f"Too short: {which} {why}{'; train longer' * (not failed)}."


def _noise(record: Record) -> str:
    """What else the machine was doing; empty if nothing notable."""
    if lost := taken(record):
        busy = [(entry.text("name"), entry.number("cores")) for entry in entries(record, "machine", "busiest")]
        who = ", ".join(f"{name} {cores(used)}" for name, used in busy if used)
        return f"other processes{who and f' ({who})'} kept training from its cores for {percent(lost)} of the time"
    if lost := taken(record, "ceilings"):
        return f"other processes took {percent(lost)} of the time in which the ceilings were measured"
    slower = "training was faster than a ceiling, so the machine was slower while that was measured"
    return slower if too_low(record) else ""


def left_out(record: Record) -> str:
    """The loggers that were off in the steps that were measured; empty if there were none."""
    names = ", ".join(str(name) for name in record.items("ceilings", "off"))
    return f"{names} (off here; strobe run measures loggers)" if names else ""


def fine(record: Record) -> bool:
    """Whether the run is about as fast as it can be: nothing is advised, and it is near its ceiling."""
    nothing = all(finding.text("cause") == "nothing" for finding in entries(record, "findings"))
    near = (share := share_of_ceiling(record)) is not None and share >= NEAR
    return nothing and near and record.text("status") == "completed" and trust(record)[0] not in ("bad", "fair")


def entries(record: Record, *path: str) -> list[Record]:
    """The mappings of a list."""
    return [Record(entry) for entry in record.items(*path) if isinstance(entry, dict)]


def estimate_of(record: Record, key: str) -> tuple[float | None, float | None, float | None]:
    """A median and the ends of its interval, as far as they are known and make sense."""
    median, low, high = (record.number(key, end) for end in ("median", "low", "high"))
    return (median, low, high) if median is not None and median > 0 else (None, None, None)


def rate_counts(record: Record) -> str:
    """What the headline rate includes, and beside it the rate of the median step, which leaves that out."""
    if not record.number("overall_images_per_second"):  # only the other one is known
        return "of the median step alone"
    included = "waiting, validation and saving included"
    known = {end: record.number("images_per_second", end) for end in ("median", "low", "high")}
    if (known["high"] or 0.0) > WIDEST * (known["low"] or math.inf):
        return f"{included}; steps differ too much for a typical rate"
    told = estimate(known, rate)
    return f"{included}; the median step alone ran at {told}" if told else included


def all_rates(record: Record) -> dict[str, float]:
    """As :func:`ceiling_rates`, and what fetching the objects alone reached, which the loader has to do as well."""
    fetched = stored(record, "rate")
    return {**({"storage": fetched} if fetched else {}), **ceiling_rates(record)}


def lowest(record: Record) -> str | None:
    """The lowest ceiling's name; None where none was measured."""
    rates = ceiling_rates(record)
    return min(rates, key=lambda name: rates[name], default=None)


def share_of_ceiling(record: Record) -> float | None:
    """The run's images/s as a share of its lowest ceiling, 1 at most; None where unknown, or a ceiling is wrong."""
    share = record.number("efficiency")
    return None if share is None or too_low(record) or is_beyond(record) else min(1.0, share)


def ceilings(record: Record) -> str:
    """The ceilings, and the run's share of them, in one line; or why there are none; empty if unknown."""
    rates, share = all_rates(record), share_of_ceiling(record)
    named = [f"{name} alone {rate(rates[name])}" for name in ("storage", "loader", "model") if name in rates]
    parts = [f"{', '.join(named)} {unit_of(record)}"] if named else []
    if joint := rates.get("joint"):
        usable = record.count("environment", "usable_cores")
        where = f"{usable} shared cores" if usable and usable > 1 else "the same core" if usable else "the same cores"
        how = f"together about {rate(joint)} on {where}"
        parts.append(f"one after the other about {rate(joint)}" if record.count("num_workers") == 0 else how)
    if parts and too_low(record):
        parts.append("a ceiling was measured too low: training was faster")
    elif parts and is_beyond(record):
        parts.append(f"this run reached {rate(rate_of(record) or 0.0)}, so these are too uncertain to compare with")
    elif parts and share is not None:
        least = lowest(record)
        whole = "that" if least == "joint" else f"the {least} alone"
        parts.append(f"this run's {rate(rate_of(record) or 0.0)} is {percent(share)} of {whole}")
    if parts and (changed := drift(record)):
        parts.append(changed)
    told, reason = "; ".join(parts), (record.text("ceilings", "reason") or "").rstrip(".")
    return f"{told}. {reason}" if told and reason else told or (reason and f"not measured: {reason}")


def drift(record: Record) -> str:
    """How far apart a ceiling was when it was measured again; empty where none was, or hardly."""
    apart = math.expm1(abs(record.number("ceilings", "drift") or 0.0))
    return f"measured again, the same ceiling was {percent(apart)} apart" if apart >= _DRIFTED else ""


def ranks(record: Record) -> str:
    """The ranks that work longest and shortest, and the slow-down, in one line; empty if unknown."""
    known = {rank: as_number(seconds) or 0.0 for rank, seconds in record.mapping("ranks", "own_seconds").items()}
    slow, low, high = estimate_of(Record(record.mapping("ranks")), "slowdown")
    if slow is None or not known:
        return ""
    most, least = (of(known, key=lambda rank: known[rank]) for of in (max, min))
    told = f"{duration(known[most])} own work a step on rank {most}, {duration(known[least])} on rank {least}"
    return f"{told}; the slowest one of a step {slow:.2f}x the mean ({interval(low, high, '{:.2f}'.format)})"


def callbacks(record: Record) -> str:
    """Callbacks, loggers and module hooks that take 1% of a step or more, the largest first; else empty."""
    if not (total := record.number("step_seconds", "total")):
        return ""
    notable = [entry for entry in record.items("callbacks") if (entry["mean"] or 0) >= _NOTABLE * total]
    notable.sort(key=lambda entry: -entry["mean"])
    parts = []
    for entry in notable[:_MOST_CALLBACKS]:
        longest = entry.get("longest") or 0
        seldom = f", once {duration(longest)}" if longest > 5 * entry["mean"] else ""
        parts.append(f"{entry['name']} {duration(entry['mean'])} ({percent(entry['mean'] / total)}{seldom})")
    if more := len(notable) - len(parts):
        parts.append(f"{more} more")
    return ", ".join(parts)


def advice(record: Record) -> list[dict[str, Any]]:
    """The first three findings, with ``command`` and ``remedies``; without ``nothing``.

    ``title``, ``predicted`` speed-up and ``advice`` are empty if the verdict says them, ``command`` if none helps.
    """
    verdict, shown = record.text("verdict") or "", []
    for finding in [one for one in record.items("findings") if one.get("cause") != "nothing"][:_MOST_FINDINGS]:
        title, predicted = str(finding["title"]), gain(finding)
        evidence = " ".join(part for part in _SENTENCE.split(str(finding["evidence"])) if rank.AGAIN not in part)
        change = " ".join(finding.get("overrides") or [])
        if title.lower() in verdict.lower() and (predicted in verdict or not finding.get("overrides")):
            title = predicted = ""
        if change and predicted:
            predicted = f"{change} -> {predicted}"
        if title and (most := bound(finding)):
            evidence = f"{evidence} {most}."
        told = {"title": title, "predicted": predicted, "evidence": evidence, "command": command_of(record, finding)}
        told |= {"advice": ""} if finding.get("advice") and finding["advice"] in verdict else {}
        shown.append(finding | told | {"remedies": remedies(finding)})
    return shown


def command_of(record: Record, finding: Mapping[str, Any]) -> str:
    """The command that applies a finding to its run; empty where only code or hardware can be changed."""
    overrides = finding.get("overrides")
    return rank.command(record, [str(part) for part in overrides]) if isinstance(overrides, list) and overrides else ""


def remedies(finding: Mapping[str, Any]) -> list[str]:
    """Other remedies for a finding's cause, one sentence each."""
    sentences = []
    for remedy in finding.get("remedies") or []:
        parts = [f"Or {' '.join(remedy['overrides'])}" if remedy["overrides"] else "Or", gain(remedy)]
        sentences.append(f"{' -> '.join(filter(None, parts))}: {remedy['advice']}")
    return sentences
