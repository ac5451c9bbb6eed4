"""What each measured alternative is estimated to give to training as a whole."""

from strobe.diagnose.finding import Speedup
from strobe.diagnose.predict import Step, with_loader, with_model
from strobe.diagnose.symptoms import worker_limit
from strobe.records.run import Alternative, Record

WORKERS = "engine.num_workers"


def estimates(record: Record, step: Step) -> list[tuple[Alternative, Speedup]]:
    """Everything that was measured beside the run's own settings, with its estimated speed-up."""
    loaders = [(entry, estimate_of_loader(record, step, entry)) for entry in record.alternatives("loader")]
    models = [(entry, with_model(step, entry.rate, images=entry.images)) for entry in record.alternatives("model")]
    return [(entry, speedup) for entry, speedup in (*loaders, *models) if speedup is not None]


def estimate_of_loader(record: Record, step: Step, entry: Alternative) -> Speedup | None:
    """The speed-up by a loader; None for fewer workers, too many, or one as fast as the run's own but for noise."""
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
