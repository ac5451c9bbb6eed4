"""Waiting for data that comes from storage: what about the storage it is, and what helps."""

from collections.abc import Callable

from strobe.diagnose.candidates import workers_of
from strobe.diagnose.fetching import GAINS, more_requests, remedies, storage_cause, stored
from strobe.diagnose.predict import WORTH, Step, with_loader, without, without_waiting
from strobe.diagnose.rules import Finding, Remedy
from strobe.present.format import counted, duration, pace, percent
from strobe.records.run import Figure, Record

SHARDS = "Shards of many images (strobe pack --shards), copied to this disk, need few requests."
CACHE = "Later epochs read from this disk what the first one has fetched."
PACK = "The first run writes the pixels of all images to this disk; later epochs and runs fetch nothing."
COPY = "All shards are copied to this disk first, each once."
WAITS = {  # by cause: what a step waits for, what was measured, and what to do
    # Nothing is fetched while training computes.
    "storage_latency": (
        "the storage's latency",
        "One object takes {alone}, however small it is",
        "Fetch the next batches while this one trains.",
    ),
    # It, or the line to it, gives no more bytes.
    "storage_bandwidth": (
        "the storage's bandwidth",
        "It gives {bytes:.1f} MB/s, and no more with more requests at once",
        "Fetch each object only once, and photos as small as they are trained on.",
    ),
    # It answers each late, and many together.
    "too_few_requests": (
        "the storage, which is asked for too few objects at once",
        "{requests} at once; with more of them the storage gives {more}",
        "Ask for more objects at once.",
    ),
}


def cold_cache(record: Record, step: Step) -> Finding | None:
    """The first epoch fills the cache, and waits; later ones do not."""
    if storage_cause(record, step) != "cold_cache":
        return None
    first, later = (stored(record, name) or 0.0 for name in ("first_wait", "later_wait"))
    share = stored(record, "first_share") or 0.0
    rate, more = (stored(record, name) or 0.0 for name in ("rate", "more"))
    faster = more_requests(record, step) if more >= GAINS * rate > 0 else ()
    saved = (first - later) * share
    return Finding(
        "cold_cache",
        "The first epoch waits for the storage, because its cache is cold",
        f"A step of the first epoch waits {duration(first)} for data, a later one {duration(later)}.",
        "Keep data.cache between runs: the next one begins with it. For a single run, train more epochs"
        + (", or ask for more objects at once." if faster else "."),
        without(step, wait=saved * (1 - rate / more) if faster else saved),
        faster,
    )


def _rule(cause: str) -> Callable[[Record, Step], Finding | None]:
    """The rule for one of the ``WAITS``."""
    waits_for, measured, advice = WAITS[cause]

    def rule(record: Record, step: Step) -> Finding | None:
        if storage_cause(record, step) != cause:
            return None
        names = ("rate", "more", "alone_seconds", "object_bytes")
        rate, more, alone, size = (stored(record, name) or 0.0 for name in names)
        requests = counted(int(step.ranks * (stored(record, "at_once") or 0)), "request")
        seen = measured.format(alone=duration(alone), bytes=size * rate / 1e6, requests=requests, more=pace(more))
        predicted, overrides = _best_remedy(record, step)
        return Finding(
            cause,
            f"{percent(step.waiting)} of each step waits for {waits_for}",
            f"{seen}; fetching alone reaches {pace(rate)}.",
            advice if record.setting("loader.shards") else f"{advice} {SHARDS}",
            predicted,
            overrides,
            remedies=tuple(remedy for remedy in _kept_here(record, step) if remedy.overrides != overrides),
        )

    rule.__name__ = cause
    return rule


def _best_remedy(record: Record, step: Step) -> tuple[Figure, tuple[str, ...]]:
    """The gain and the overrides of the best one that was measured; else of one that was not."""
    tried = remedies(record, step)
    measured = [
        (with_loader(step, entry.rate, workers=workers_of(entry, step), cpu=entry.cpu_seconds), entry.overrides)
        for entry in record.alternatives("loader")
        if entry.overrides in tried
    ]
    others = [*tried, *(remedy.overrides for remedy in _kept_here(record, step)), ()]
    predicted, overrides = max(measured, key=lambda pair: pair[0].median, default=(without_waiting(step), others[0]))
    return (predicted if predicted.median >= WORTH else without_waiting(step)), overrides


def _kept_here(record: Record, step: Step) -> list[Remedy]:
    """What keeps on this disk that which was fetched; none of it is measured, because the first epoch pays for it."""
    if record.setting("loader.stream") is True:
        choices = [(COPY, "loader.stream=false")]
    else:
        whole = record.has("data.bands") or record.setting("data.framing") == "resize"  # what a pack can hold
        choices = [(CACHE, "data.cache=data/cache")] * (record.setting("data.cache") is None)
        choices += [(PACK, "loader=packed")] * whole
    return [Remedy(advice, (override,), without_waiting(step)) for advice, override in choices]


RULES = tuple(map(_rule, WAITS))
