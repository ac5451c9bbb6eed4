"""Waiting for data: a slow loader, workers that take the model's cores, workers that are restarted each epoch."""

import math
from dataclasses import replace

from strobe.callbacks.columns import COLLATING, LOADING, SAMPLING
from strobe.diagnose.attribution import SLEEPING
from strobe.diagnose.candidates import WORKERS, estimate_of_loader, staying, workers_of
from strobe.diagnose.cores import (
    SHARED,
    fewer_workers,
    lack_of_cores,
    lost_cores,
    needless_threads,
    sharing,
    taken,
    taken_by_children,
    untried_workers,
)
from strobe.diagnose.fetching import storage_cause
from strobe.diagnose.foreign import is_foreign
from strobe.diagnose.looks import looks, share_of
from strobe.diagnose.predict import NOTABLE, WORTH, Step, up_to, with_loader, without, without_waiting
from strobe.diagnose.restarts import (
    RELOAD,
    Restarts,
    epoch_starts,
    first_batch,
    restarts,
    starts_within,
    steady_waiting,
    usual_wait,
    validation_restarts,
)
from strobe.diagnose.rules import Finding, Remedy
from strobe.diagnose.symptoms import (
    FAR_ABOVE,
    cores_of_a_rank,
    crowded,
    is_rebuilt,
    sent_whole,
    worker_limit,
    workers_in_vain,
)
from strobe.present.format import cores, counted, duration, pace, percent
from strobe.records.run import Figure, Record

SELDOM = 0.75  # of the steps in which a worker's batches come in turn: fewer wait because some batches take long
MOST_NOISE = 0.25  # of the step: more waiting than this is real, however uneven the steps are
BEGINS = (
    "Look at what begins an epoch: a sampler that draws all indices, or more than an epoch uses; the data set's "
    "__iter__; files that are opened or listed; the first batch, if it takes a worker long. More workers do not help."
)
FIRST = "Cheaper samples, smaller batches or longer epochs help; more workers do not."
COLLATED = (
    "Let the data set make the whole batch at once (__getitems__). At least let samples be tensors or arrays, not "
    "lists: each number of a list becomes a tensor of its own."
)
CHEAPER = (
    "Make samples cheaper: decode, transform and open files once, not for each sample, and of no more data than is "
    "used."
)
ANEW = "Take all batches of an epoch from one iterator: next(iter(loader)) begins an epoch for each batch."
FORKS = (
    "Keep the workers between epochs, those of validation, too: each of them is a fork of training. Or load in the "
    "training process where that is quick (num_workers=0)."
)
REBUILT = "Make the DataLoader once, before the loop over epochs, with persistent_workers=True."
FAR = 3.0  # times as long as the loader alone takes
LONGEST = 1.5  # times a worker's batch: a longer wait at the start of an epoch is for something else, too
PREFETCH = "engine.prefetch_factor"
UNSEEN = "Loader workers cannot be seen from here: strobe probe tells in which lines samples are made."

MOST_PARTS, MOSTLY = 3, 0.5
_PARTS = {  # spans of loading, in words
    "read": "reading",
    "decode": "decoding",
    "read+decode": "reading and decoding",
    "open": "opening files",
    "scale": "scaling",
    "collate": "collating",
    "sampler": "drawing its indices",
    "rest": "other work on the items",
}
_HINTS = {
    "collate": "Most of loading is collating: let the data set fill one tensor for the whole batch (__getitems__).",
    "sampler": "Most of loading is the sampler, and no worker does that: draw the indices of many batches at once.",
    "read": "Most of loading is reading: pack the images into one file, or keep them on a faster disk.",
    "open": "Most of loading is opening files: pack the images into one file.",
    "scale": "Most of loading is scaling: leave integers as they are, and scale a whole batch on the device.",
}


def loader(record: Record, step: Step) -> Finding | None:
    """A notable share of the step waits for data, beyond noise; proposes the best remedy that was measured or bounded.

    Waits at the starts of epochs belong to ``workers_restart`` or ``epoch_start``.
    """
    if storage_cause(record, step):
        return None
    if steady_waiting(record, step) < max(NOTABLE, min(step.noise, MOST_NOISE)) or lack_of_cores(record, step):
        return None
    remedies = [
        Remedy(
            f"With {' '.join(entry.overrides)} the loader alone reaches {pace(entry.rate.median)}.",
            entry.overrides,
            found,
        )
        for entry in record.alternatives("loader")
        if (found := estimate_of_loader(record, step, entry)) is not None
    ]
    in_vain, lost = workers_in_vain(record, step), lost_cores(record, step)
    if in_vain is None and not lost:
        remedies += [remedy for remedy in (_more_workers(record, step), _prefetch(record, step)) if remedy]
    most = max((one.predicted_speedup.median for one in remedies), default=0.0)
    least = max(WORTH, most / WORTH)
    helping = (one for one in remedies if one.predicted_speedup.median >= least)  # fewer workers first
    best = next(helping, Remedy(_nothing_measured(record, step), (), without_waiting(step)))
    others = [one for one in remedies if one.overrides != best.overrides and one.predicted_speedup.low > 1]
    wait = f"Each {duration(step.seconds)} step waits {duration(step.wait * step.images)} for data"
    sides = (("loader", step.loader), ("model", step.model))
    known = [(name, rate) for name, rate in sides if rate and FAR_ABOVE * rate.median > 1 / step.length]  # not wrong
    alone = ", ".join(f"the {name} alone reaches {pace(rate.median)}" for name, rate in known)
    told, hint = _making(record)
    told += f" {in_vain[0]}" if in_vain else f" {lost}" if lost else _seldom(record, step)
    return Finding(
        "loader",
        f"{percent(step.waiting)} of each step waits for data",
        (f"{wait}; {alone}." if alone else f"{wait}.") + told,
        f"{best.advice}{f' {hint}' if hint else ''}",
        best.predicted_speedup,
        best.overrides,
        share=step.waiting * step.length / step.total,
        partial=not best.overrides and not step.workers,  # what loads beside no worker takes training's caches, too
        remedies=tuple(sorted(others, key=lambda one: -one.predicted_speedup.median)),
    )


def workers_hurt(record: Record, step: Step) -> Finding | None:
    """Workers take cores that training needs: fewer should be faster, or no core is idle while training waits."""
    if not crowded(record, step) or storage_cause(record, step):
        return None
    lost = taken_by_children(record, step) * (1 - needless_threads(record))
    fewer = [
        (with_loader(step, entry.rate, workers=count, cpu=entry.cpu_seconds), entry)
        for entry in record.alternatives("loader")
        if entry.changes.keys() == {WORKERS} and (count := workers_of(entry, step)) < step.workers
    ]
    predicted, best = max(fewer, key=lambda pair: pair[0].median, default=(None, None))
    lacking = lack_of_cores(record, step) and steady_waiting(record, step) >= NOTABLE
    if lacking and (predicted is None or predicted.median < WORTH):
        predicted = up_to(without(step, wait=step.wait * step.images))
    if lost and (predicted is None or predicted.median < WORTH):
        return _costly_samples(record, step, lost)
    if predicted is None:
        return None
    wanting = sharing(record, step)
    left = workers_of(best, step) if best else max(1, math.floor(cores_of_a_rank(record) or 0) - 1)
    idle = percent(record.amount("machine", "idle"))
    if lacking and step.loader:
        wanting += f" ({idle} idle); {percent(step.waiting)} of each step waits for data, though the loader "
        wanting += f"alone reaches {pace(step.loader.median)}"
    if best:
        wanting += f"; with {left} the loader alone reaches {pace(best.rate.median)}"
    sent, hint = sent_whole(record) or ("", "")
    instead = f"Use {counted(left, 'worker')}" if left else f"Load in the training process: {SHARED}"
    return Finding(
        "workers_hurt",
        f"{counted(step.workers, 'worker')} {'takes' if step.workers == 1 else 'take'} cores that training needs",
        f"{wanting}.{sent}",
        f"{instead}. {hint}".strip(),
        predicted,
        best.overrides if best else (f"{WORKERS}={left}",) if left < step.workers and record.has(WORKERS) else (),
    )


def _costly_samples(record: Record, step: Step, lost: float) -> Finding:
    """Workers that training does not wait for, but whose cores it needs, for ``lost`` of its time."""
    used = cores(record.amount("machine", "children") * (step.cores or 1.0))
    made, hint = _making(record)
    cheaper = hint if hint == COLLATED else f"{CHEAPER} {hint}".strip()
    return Finding(
        "workers_hurt",
        f"{counted(step.workers, 'worker')} {'takes' if step.workers == 1 else 'take'} {used} that training needs",
        f"{sharing(record, step)}; training waited for a core for {percent(lost)} of its time beside them.{made}",
        f"{cheaper} Fewer workers leave training more cores, if it then does not wait for data.",
        # Cheaper samples come sooner, too: how fast workers load now is no limit, and no step waits.
        up_to(without(replace(step, workers=0), compute=lost * step.total * step.images, wait=step.wait * step.images)),
        share=min(1.0, lost + step.wait / step.total),
    )


def workers_restart(record: Record, step: Step) -> Finding | None:
    """Workers end with each epoch; the next epoch waits until new ones have started and loaded a first batch.

    Or a loader begins anew within an epoch, because it is shorter than the one beside it.
    """
    anew = restarts(record, step)
    kept = [(RELOAD, "0")] if record.whole(RELOAD) else []
    kept += [("engine.persistent_workers", "true")] if record.setting("engine.persistent_workers") is False else []
    validating, within = validation_restarts(record), starts_within(record)
    if not anew or not (kept or validating or within or is_rebuilt(record)):
        return None
    if within:
        return _restarts_in_steps(record, step, anew, within)
    costs, start = [], record.amount("epoch_starts", "data_wait")
    begun = record.amount("epoch_starts", "count") + record.amount("validation_starts", "within") * bool(validating)
    share = max(1.0, begun) / (record.number("steps", "measured") or 1.0)
    if anew.wait:
        usual = duration(usual_wait(record, step))
        costs.append(f"the first step of an epoch waits {duration(start)} for data, others {usual}")
    copies = anew.copying >= MOSTLY * anew.computing > 0
    if anew.computing:
        why = ", as the kernel copies memory that training shares with them and writes to" if copies else ""
        costs.append(f"the first steps beside new workers compute {duration(anew.computing / share)} longer{why}")
    if validating:
        each = duration(record.amount("validation_starts", "between"))
        costs.append(f"a validation waits {each} for workers of its own")
    elif anew.between:
        costs.append(f"between epochs it takes {duration(anew.between / share)} to replace them")
    advice = FORKS if copies else "Keep the workers between epochs."
    advice = advice if kept else "Keep validation's: DataLoader(..., persistent_workers=True)."
    if often := _begun_anew(record):
        kept, advice = [], ANEW
    elif is_rebuilt(record):
        kept, advice = [], REBUILT
    costs.append(f"restarts take {percent(anew.seconds / step.images / step.total)} of training.{often}")
    told = "; ".join(costs)
    return Finding(
        "workers_restart",
        f"Loader workers are restarted {'in each epoch' if anew.wait or not validating else 'for each validation'}",
        told[0].upper() + told[1:],
        advice,
        without(step, wait=anew.wait, compute=anew.computing, between=anew.between),
        tuple(f"{key}={value}" for key, value in kept),
    )


def _restarts_in_steps(record: Record, step: Step, anew: Restarts, share: float) -> Finding:
    count, measured = (record.count(*keys) or 0 for keys in (("worker_starts", "count"), ("steps", "measured")))
    return Finding(
        "workers_restart",
        f"Loader workers are started anew in {count:,} of {measured:,} steps",
        f"Such a step waits {duration(anew.wait / share)} longer for data than others, and computes "
        f"{duration(anew.computing / share)} longer beside the new workers; that is "
        f"{percent(anew.seconds / step.images / step.total)} of training.",
        "A loader begins anew before the epoch ends, for instance because it has fewer batches than the one beside it. "
        "Let it keep its workers: DataLoader(..., persistent_workers=True). Or load a small set without any: "
        "num_workers=0.",
        without(step, wait=anew.wait, compute=anew.computing),
    )


def epoch_start(record: Record, step: Step) -> Finding | None:
    """The first step of each epoch waits far longer than others, and no restarted worker explains it."""
    begun = epoch_starts(record, step)
    if begun < NOTABLE * step.seconds:
        return None
    start = record.amount("epoch_starts", "data_wait")
    usual, share = duration(usual_wait(record, step)), percent(begun / step.seconds)
    evidence = f"Others wait {usual}. The difference is {share} of all step time."
    advice = BEGINS
    if start <= LONGEST * (made := first_batch(record, step)):
        evidence += f" A worker takes {duration(made)} to make its first batch, and none is ready when an epoch begins."
        advice = FIRST
    if (drawn := share_of(record, "data_wait", SAMPLING)) >= MOSTLY:
        evidence += f" For {percent(drawn)} of all waiting the sampler draws the indices of batches."
        advice = "Let the sampler draw no more indices than an epoch uses."
    if often := _begun_anew(record):
        evidence, advice = f"{evidence}{often}", ANEW
    return Finding(
        "epoch_start",
        f"The first step of each epoch waits {duration(start)} for data",
        evidence,
        advice,
        without(step, wait=begun),
    )


def _begun_anew(record: Record) -> str:
    """A sentence where most steps begin an epoch, though an epoch has more batches than one; else empty."""
    count, measured = record.amount("epoch_starts", "count"), record.number("steps", "measured") or 1.0
    if count < MOSTLY * measured or record.count("batches_per_epoch") == 1:
        return ""
    return f" {min(count, measured):.0f} of {measured:.0f} steps begin an epoch."


def _more_workers(record: Record, step: Step) -> Remedy | None:
    """More workers, which were not measured: the gain lies between none and each being as fast as one is now."""
    limit = worker_limit(record, step)
    tried = any(WORKERS in entry.changes for entry in record.alternatives("loader"))
    if tried or limit is None or limit.workers <= step.workers or not record.has(WORKERS):
        return None
    now = step.loader.median if step.loader else 1 / (step.loading or step.length)
    one = now / max(1, step.workers)
    count = min(limit.workers, max(step.workers + 1, math.ceil(1.1 / (one * step.compute))))
    guess = Figure(math.sqrt(now * one * count), now, one * count)
    predicted = with_loader(step, guess, workers=count, cpu=step.loader_cpu)
    return Remedy(untried_workers(record, count), (f"{WORKERS}={count}", *staying(record, step)), predicted)


def _prefetch(record: Record, step: Step) -> Remedy | None:
    """Workers are fast enough on average, but training still waits for them: deeper queues even out the variation."""
    factor = record.whole(PREFETCH)
    if not step.workers or step.loader is None or not factor or not record.has(PREFETCH):
        return None
    free, size = record.number("environment", "shm_free_bytes"), record.number("ceilings", "batch_bytes")
    if 1 / step.loader.low > step.compute or (free and size and 4 * factor * step.workers * size > free):
        return None
    advice = "The workers are fast enough but uneven: let each keep more batches ready."
    return Remedy(advice, (f"{PREFETCH}={2 * factor}",), without_waiting(step))


def _making(record: Record) -> tuple[str, str]:
    """What making a batch takes, as a sentence, and what to do about most of it; both empty if unknown."""
    told, hint = sent_whole(record) or _parts(record)
    waits, works = (share_of(record, phase, COLLATING) for phase in ("data_wait", LOADING))
    if told or max(waits, works) < MOSTLY:
        return told, hint
    theirs = f"Workers spend {percent(works)} of their time"
    joining = f"{percent(waits)} of the wait goes to" if waits >= MOSTLY else theirs
    return f" {joining} joining samples into batches (default_collate).", COLLATED


def _parts(record: Record) -> tuple[str, str]:
    """What making a batch takes, as a sentence, and what to do about its largest part; both empty if unknown."""
    whole = record.amount("ceilings", "loading", "seconds")
    parts = record.amounts_of("ceilings", "loading", "parts")
    known = sorted(parts.items(), key=lambda part: -part[1])
    if whole <= 0 or not known:
        trainer = is_foreign(record) and record.text("choices", "model")  # which a probe needs
        return "", UNSEEN if trainer and record.count("num_workers") and not looks(record, LOADING) else ""
    shares = [f"{_PARTS.get(name, name)} {percent(seconds / whole)}" for name, seconds in known[:MOST_PARTS]]
    sentence = f" In one process a batch takes {duration(whole)}: {', '.join(shares)}"
    asleep = record.amount("ceilings", "loading", "cores") < SLEEPING
    sentence += "; most of that time is waiting, not computing." if asleep else "."
    name, seconds = known[0]
    return sentence, _HINTS.get(name, "") if seconds > MOSTLY * whole else ""


def _seldom(record: Record, step: Step) -> str:
    """A sentence where a few batches are waited for, and most are not; empty otherwise."""
    long, measured = record.amount("uneven", "steps"), record.amount("steps", "measured")
    extra = record.amount("uneven", "extra_seconds")
    few = long < SELDOM * measured / max(1, step.workers)
    if record.text("uneven", "phase") != "data_wait" or not few or extra < MOSTLY * step.wait * step.images:
        return ""
    why = "" if taken(record) else ": some samples take far longer to make"
    return f" Most of the wait is in {long:.0f} of {measured:,.0f} steps{why}."


def _nothing_measured(record: Record, step: Step) -> str:
    if in_vain := workers_in_vain(record, step):
        return in_vain[1]
    tried = "No measured alternative loads faster" if record.alternatives("loader") else "No alternative was measured"
    if step.loader and step.wait > FAR / step.loader.low and not step.workers:
        return (
            "The loader alone is far faster than in training: look at what training adds, such as a collate function."
        )
    if lost_cores(record, step):
        return f"{fewer_workers(step)}Going further needs more cores, or samples that are cheaper to make."
    advice = f"{tried}: look at the storage, and at the time to decode an image."
    limit = worker_limit(record, step)
    if limit is not None and limit.workers <= step.workers:
        room = "The cores have" if limit.by == "cores" else f"{limit.by} has"
        each = " of each rank" if step.ranks > 1 else ""
        advice += f" {room} room for {counted(limit.workers, 'worker')}{each}, and no more."
    return advice
