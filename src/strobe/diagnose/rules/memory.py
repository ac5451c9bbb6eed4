"""Memory: what grows until there is no more of it, and what the system moves to a disk meanwhile."""

from strobe.diagnose.predict import Step
from strobe.diagnose.rules import Finding
from strobe.present.format import duration, size
from strobe.records.run import Figure, Record

HOUR, DAY = 3600.0, 86400.0  # seconds: what fills the memory within an hour comes first, after a day it is no matter
LEAST_GROWTH, LEAST_SHARE = 16e6, 0.05  # bytes, and of what was held at first: less is how processes begin
_GROWS = {
    "workers_memory": (
        "Loader workers grow",
        "Look for what the data set keeps of each item: a list, a cache, an open file. Until that is mended, fewer "
        "workers, or new ones in each epoch (persistent_workers=false), put it off.",
    ),
    "memory": (
        "The training process grows",
        "Look for what is kept of each step: losses with their graphs (keep loss.detach()), outputs, a metric "
        "that holds all predictions.",
    ),
}


def growing_memory(record: Record, step: Step) -> list[Finding]:
    """Memory that grows steadily, by how much, and when none is left; training is not slowed down by that."""
    free, found = record.number("environment", "memory_free_bytes"), []
    for name, (title, advice) in _GROWS.items():
        first, last, pace, seconds = (
            record.number("memory_growth", name, key) or 0.0
            for key in ("first_bytes", "last_bytes", "bytes_per_second", "seconds")
        )
        notable = last - first >= max(LEAST_GROWTH, LEAST_SHARE * first)
        if not record.flag("memory_growth", name, "steady") or not notable or pace <= 0:
            continue
        count = max(1, step.workers) if name == "workers_memory" else 1
        left = free / (pace * count) if free is not None else 0.0
        if left > DAY:
            continue
        who = "the largest worker" if count > 1 else "the worker" if name == "workers_memory" else "it"
        evidence = f"In {duration(seconds)} {who} grew from {size(first)} to {size(last)}, steadily."
        if free is not None:
            evidence += f" At this pace the {size(free)} that are free now last for {duration(left)}."
        found.append(
            Finding(
                "growing_memory",
                f"{title} by {size(pace * count)} a second",
                evidence,
                advice,
                (),
                Figure(1.0, 1.0, 1.0),
                subject=name,
                lost=1.0 if left < HOUR else 0.0,  # all of it, when it ends the run
            )
        )
    return found
