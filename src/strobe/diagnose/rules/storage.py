"""Waiting for data that comes from storage: what about the storage it is, and what helps."""

from strobe.diagnose.candidates import workers_of
from strobe.diagnose.fetching import GAINS, more_requests, remedies, storage_cause
from strobe.diagnose.predict import WORTH, Step, with_loader, without, without_waiting
from strobe.diagnose.rules import Finding, Remedy
from strobe.present.format import counted, duration, pace, percent
from strobe.records.run import Record

SHARDS = "Shards of many images (python -m strobe.pack --shards), copied to this disk, need few requests."
CACHE = "Later epochs read from this disk what the first one has fetched."
PACK = "The first run writes the pixels of all images to this disk; later epochs and runs fetch nothing."
COPY = "All shards are copied to this disk first, each once."


def storage_latency(record: Record, step: Step) -> Finding | None:
    """Each step waits for the storage's first byte: nothing is fetched while training computes."""
    alone = record.number("ceilings", "storage", "alone_seconds") or 0.0
    return _finding(
        record,
        step,
        cause="storage_latency",
        what="waits for the storage's latency",
        measured=f"One object takes {duration(alone)}, however small it is",
        advice="Fetch the next batches while this one trains.",
    )


def storage_bandwidth(record: Record, step: Step) -> Finding | None:
    """The storage, or the line to it, gives no more bytes, however many requests there are."""
    size = record.number("ceilings", "storage", "object_bytes") or 0.0
    rate = record.number("ceilings", "storage", "rate") or 0.0
    return _finding(
        record,
        step,
        cause="storage_bandwidth",
        what="waits for the storage's bandwidth",
        measured=f"It gives {size * rate / 1e6:.1f} MB/s, and no more with more requests at once",
        advice="Fetch each object only once, and photos as small as they are trained on.",
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
        advice="Ask for more objects at once.",
    )


def cold_cache(record: Record, step: Step) -> Finding | None:
    """The first epoch fills the cache, and waits; later ones do not."""
    if storage_cause(record, step) != "cold_cache":
        return None
    first, later = (record.number("ceilings", "storage", name) or 0.0 for name in ("first_wait", "later_wait"))
    share = record.number("ceilings", "storage", "first_share") or 0.0
    rate, more = (record.number("ceilings", "storage", name) or 0.0 for name in ("rate", "more"))
    faster = more_requests(record) if more >= GAINS * rate > 0 else ()
    saved = (first - later) * share
    return Finding(
        "cold_cache",
        "The first epoch waits for the storage, because its cache is cold",
        f"A step of the first epoch waits {duration(first)} for data, a later one {duration(later)}.",
        "Keep data.cache between runs: the next one begins with it. For a single run, train more epochs"
        + (", or ask for more objects at once." if faster else "."),
        faster,
        without(step, wait=saved * (1 - rate / more) if faster else saved),
    )


def _finding(record: Record, step: Step, *, cause: str, what: str, measured: str, advice: str) -> Finding | None:
    if storage_cause(record, step) != cause:
        return None
    rate = record.number("ceilings", "storage", "rate") or 0.0
    tried, kept = remedies(record, step), _kept_here(record, step)
    found = [
        (with_loader(step, entry.rate, workers=workers_of(entry, step), cpu=entry.cpu_seconds), entry.overrides)
        for entry in record.alternatives("loader")
        if entry.overrides in tried
    ]
    others = [*tried, *(remedy.overrides for remedy in kept)]
    unmeasured = without_waiting(step), others[0] if others else ()
    predicted, overrides = max(found, key=lambda pair: pair[0].median, default=unmeasured)
    if predicted.median < WORTH:
        predicted = without_waiting(step)
    return Finding(
        cause,
        f"{percent(step.waiting)} of each step {what}",
        f"{measured}; fetching alone reaches {pace(rate)}.",
        advice if record.setting("loader.shards") else f"{advice} {SHARDS}",
        overrides,
        predicted,
        remedies=tuple(remedy for remedy in kept if remedy.overrides != overrides),
    )


def _kept_here(record: Record, step: Step) -> list[Remedy]:
    """What keeps on this disk that which was fetched; none of it is measured, because the first epoch pays for it."""
    if record.setting("loader.stream") is True:
        told = [(COPY, "loader.stream=false")]
    else:
        whole = record.has("data.bands") or record.setting("data.framing") == "resize"  # what a pack can hold
        told = [(CACHE, "data.cache=data/cache")] * (record.setting("data.cache") is None)
        told += [(PACK, "loader=packed")] * whole
    return [Remedy(advice, (override,), without_waiting(step)) for advice, override in told]
