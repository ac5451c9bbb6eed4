"""Memory that grows until none is left."""

from strobe.diagnose.cores import taken
from strobe.diagnose.predict import Step
from strobe.diagnose.rules import Finding
from strobe.present.format import duration, size
from strobe.records.run import Figure, Record

HOUR, DAY = 3600.0, 86400.0  # seconds: memory that is full within an hour comes first, after a day it does not matter
SEEN = 60.0  # times as long as the growth was seen: what lies further ahead is a guess
LEAST_GROWTH, LEAST_SHARE = 64e6, 0.05  # bytes, and of the first reading: processes grow so much in their first minute
_GROWS = {
    "workers_memory": (
        "The loader workers' memory grows",
        "Look for what the data set keeps of each item: a list, a cache, an open file. Until that is fixed, fewer "
        "workers, or restarting them each epoch (persistent_workers=false), buy time.",
    ),
    "memory": (
        "The training process's memory grows",
        "Look for what each step leaves behind: losses with their graphs (keep loss.detach()), outputs, a metric "
        "that holds all predictions.",
    ),
}


def growing_memory(record: Record, step: Step) -> list[Finding]:
    """Memory that grows steadily: by how much, and when none will be left. It does not slow training down."""
    free, findings = record.number("environment", "memory_free_bytes"), []
    for name, (title, advice) in _GROWS.items():
        first, last, pace, seconds = (
            record.amount("memory_growth", name, key)
            for key in ("first_bytes", "last_bytes", "bytes_per_second", "seconds")
        )
        notable = last - first >= max(LEAST_GROWTH, LEAST_SHARE * first)
        if not record.flag("memory_growth", name, "steady") or not notable or pace <= 0:
            continue
        count = max(1, step.workers) if name == "workers_memory" else 1
        left = free / (pace * count) if free is not None else 0.0
        if left > DAY or (left > SEEN * seconds and taken(record)):  # beside others a first minute takes longer
            continue
        who = "The largest worker" if count > 1 else "The worker" if name == "workers_memory" else "It"
        evidence = f"{who} grew steadily from {size(first)} to {size(last)} in {duration(seconds)}."
        if free is not None:
            evidence += f" At this pace the {size(free)} that are free now last {duration(left)}."
        findings.append(
            Finding(
                "growing_memory",
                f"{title} by {size(pace * count)} a second",
                evidence,
                advice,
                Figure(1.0, 1.0, 1.0),
                subject=name,
                lost=1.0 if left < min(HOUR, SEEN * seconds) else 0.0,  # all of training, when it ends the run
            )
        )
    return findings
