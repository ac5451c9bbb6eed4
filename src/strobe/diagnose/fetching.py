"""What a training waits for whose images come from storage: its latency, its bandwidth, too few requests, a cold cache.

``ceilings.storage`` has what fetching alone reached: ``rate`` images/s of all ``ranks`` with ``at_once`` requests of
each under way, as the run has them, ``more`` with ``MORE_REQUESTS`` times as many, ``alone_seconds`` for a single
object; and, where a cache was filled, the wait of a step in the first epoch and in later ones.
"""

import math

from strobe.diagnose.predict import NOTABLE, Step
from strobe.diagnose.restarts import steady_waiting
from strobe.records.run import Record

CAUSES = ("storage_latency", "storage_bandwidth", "too_few_requests", "cold_cache")
MOST_REQUESTS = 1024
MORE_REQUESTS = 4
GAINS = 1.3  # times as many images/s: so much faster with more requests, and they are too few
QUEUED = 3.0  # times as long as one object alone takes: they wait for each other, on the way
PACED = 0.5  # of what fetching alone reaches: a slower loader waits for something else
COLD = 3.0  # times the wait of later epochs
MOSTLY = 0.5  # of all waiting


def stored(record: Record, name: str) -> float | None:
    """A figure of ``ceilings.storage``; None where fewer ranks fetched than trained, as only the first one once did."""
    fetched, trained = record.count("ceilings", "storage", "ranks"), record.count("world_size")
    return record.number("ceilings", "storage", name) if (fetched or 1) >= (trained or 1) else None


def storage_cause(record: Record, step: Step) -> str | None:
    """What about the storage a step waits for; None if it hardly waits, or waits for something else."""
    rate, more, alone, at_once, first, later, share = (
        stored(record, name)
        for name in ("rate", "more", "alone_seconds", "at_once", "first_wait", "later_wait", "first_share")
    )
    if not rate or steady_waiting(record, step) < NOTABLE:
        return None
    if first and share and later is not None and first >= COLD * later:
        extra = (first - later) * share
        if extra >= MOSTLY * (first * share + later * (1 - share)):
            return "cold_cache"
    if not more or not alone or not at_once or (step.loader is not None and step.loader.median < PACED * rate):
        return None
    if more < GAINS * rate and at_once * step.ranks / rate >= QUEUED * alone:
        return "storage_bandwidth"
    return "too_few_requests" if step.workers and more >= GAINS * rate else "storage_latency"


def for_bytes(record: Record, step: Step) -> float:
    """Seconds of a step in which it waits for the storage and not for a core: as long as fetching its images takes."""
    rate = stored(record, "rate")
    return step.images / rate if rate else 0.0


def remedies(record: Record, step: Step) -> list[tuple[str, ...]]:
    """Overrides that may help against the cause, and can be measured."""
    cause = storage_cause(record, step)
    if cause == "too_few_requests" and (more := more_requests(record, step)):
        return [more]
    if cause == "storage_latency":
        return [("engine=litdata", f"engine.num_workers={MORE_REQUESTS * max(1, step.workers)}")]
    return []


def more_requests(record: Record, step: Step) -> tuple[str, ...]:
    """The overrides that ask for ``MORE_REQUESTS`` times as many objects at once; none where the most are asked for.

    Each worker asks for the objects of a batch. Threads share the ``data.requests`` of their process.
    """
    requests, batch = record.whole("data.requests"), record.whole("data.batch_size")
    now = int(stored(record, "at_once") or 0)
    if not requests or not batch or not 0 < now < MOST_REQUESTS:
        return ()
    wanted = min(MOST_REQUESTS, MORE_REQUESTS * now)
    more = [f"data.requests={wanted}"] if wanted > requests else []
    if batch * max(1, step.workers) < wanted:
        more += ["engine=litdata", f"engine.num_workers={math.ceil(wanted / batch)}"]
    return tuple(more)
