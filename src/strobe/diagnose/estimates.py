"""What each measured alternative promises for training as a whole."""

from strobe.diagnose.finding import Speedup
from strobe.diagnose.predict import Step, with_loader, with_model
from strobe.diagnose.symptoms import worker_limit
from strobe.records.run import Alternative, Record

WORKERS = "engine.num_workers"


def promised(record: Record, step: Step) -> list[tuple[Alternative, Speedup]]:
    """Everything that was measured beside the run's own settings, with the speed-up that it promises."""
    loaders = [(entry, promised_by_loader(record, step, entry)) for entry in record.alternatives("loader")]
    models = [(entry, with_model(step, entry.rate, images=entry.images)) for entry in record.alternatives("model")]
    return [(entry, speedup) for entry, speedup in (*loaders, *models) if speedup is not None]


def promised_by_loader(record: Record, step: Step, entry: Alternative) -> Speedup | None:
    """Of a loader; None for fewer workers, too many, or one that noise cannot tell apart from the run's own."""
    workers, limit = workers_of(entry, step), worker_limit(record, step, lenient=True)
    if workers < step.workers or (workers > step.workers and limit is not None and workers > limit.workers):
        return None
    if workers == step.workers and step.loader is not None and entry.rate.low <= step.loader.high:
        return None
    return with_loader(step, entry.rate, workers=workers, cpu=entry.cpu_seconds)


def workers_of(entry: Alternative, step: Step) -> int:
    """The workers of an alternative, those of the run if it does not change them."""
    value = entry.changes.get(WORKERS, "")
    return int(value) if value.isdigit() else step.workers
