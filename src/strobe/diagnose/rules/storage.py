"""Waiting for data that comes from storage: what about the storage it is, and what helps."""

from strobe.diagnose.candidates import workers_of
from strobe.diagnose.fetching import remedies, storage_cause
from strobe.diagnose.predict import WORTH, Step, with_loader, without, without_waiting
from strobe.diagnose.rules import Finding
from strobe.present.format import counted, duration, pace, percent
from strobe.records.run import Record

ELSEWHERE = "A cache on the local disk (data.cache=FOLDER) fetches each object once for all epochs"
SHARDS = "shards of many images (python -m strobe.pack --shards), copied to this disk, need few requests"


def storage_latency(record: Record, step: Step) -> Finding | None:
    """Each step waits for the storage's first byte: nothing is fetched while training computes."""
    alone = record.number("ceilings", "storage", "alone_seconds") or 0.0
    return _finding(
        record,
        step,
        cause="storage_latency",
        what="waits for the storage's latency",
        measured=f"One object takes {duration(alone)}, however small it is",
        advice=f"Fetch the next batches while this one trains. {ELSEWHERE}, and {SHARDS}.",
    )


def storage_bandwidth(record: Record, step: Step) -> Finding | None:
    """The storage, or the line to it, gives no more bytes, however many requests there are."""
    size = record.number("ceilings", "storage", "object_bytes") or 0.0
    rate = record.number("ceilings", "storage", "rate") or 0.0
    cached = record.setting("data.cache") is not None
    return _finding(
        record,
        step,
        cause="storage_bandwidth",
        what="waits for the storage's bandwidth",
        measured=f"It gives {size * rate / 1e6:.1f} MB/s, and no more with more requests at once",
        advice=f"{ELSEWHERE}."
        if not cached
        else f"Fetch fewer bytes: {SHARDS}, of photos as small as they are trained on.",
        unmeasured=() if cached else ("data.cache=data/cache",),
    )


def too_few_requests(record: Record, step: Step) -> Finding | None:
    """More objects at once would come faster: the storage answers each late, and many together."""
    more = record.number("ceilings", "storage", "more") or 0.0
    at_once = record.count("ceilings", "storage", "at_once") or 0
    return _finding(
        record,
        step,
        cause="too_few_requests",
        what="waits for the storage, which is asked for too few objects at once",
        measured=f"{counted(at_once, 'request')} at once; with more of them the storage gives {pace(more)}",
        advice=f"Ask for more objects at once. {ELSEWHERE}, and {SHARDS}.",
    )


def cold_cache(record: Record, step: Step) -> Finding | None:
    """The first epoch fills the cache, and waits; later ones do not."""
    if storage_cause(record, step) != "cold_cache":
        return None
    first, later = (record.number("ceilings", "storage", name) or 0.0 for name in ("first_wait", "later_wait"))
    share = record.number("ceilings", "storage", "first_share") or 0.0
    return Finding(
        "cold_cache",
        "The first epoch waits for the storage, because its cache is cold",
        f"A step of the first epoch waits {duration(first)} for data, a later one {duration(later)}.",
        "Keep data.cache between runs: the next one begins with it. For a single run, train more epochs.",
        (),
        without(step, wait=(first - later) * share),
    )


def _finding(
    record: Record, step: Step, *, cause: str, what: str, measured: str, advice: str, unmeasured: tuple[str, ...] = ()
) -> Finding | None:
    if storage_cause(record, step) != cause:
        return None
    rate = record.number("ceilings", "storage", "rate") or 0.0
    tried = remedies(record, step)
    found = [
        (with_loader(step, entry.rate, workers=workers_of(entry, step), cpu=entry.cpu_seconds), entry.overrides)
        for entry in record.alternatives("loader")
        if entry.overrides in tried
    ]
    predicted, overrides = max(found, key=lambda pair: pair[0].median, default=(without_waiting(step), unmeasured))
    if predicted.median < WORTH:
        predicted = without_waiting(step)
    if not found and tried and not unmeasured:
        overrides = tried[0]
    return Finding(
        cause,
        f"{percent(step.waiting)} of each step {what}",
        f"{measured}; fetching alone reaches {pace(rate)}.",
        advice,
        overrides,
        predicted,
    )
