"""What the starts of epochs and of loader workers cost, beyond what other steps take."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from strobe.callbacks.columns import BETWEEN, ENDING_WORKERS
from strobe.diagnose.looks import share_of
from strobe.diagnose.predict import Step, cpu_by_children
from strobe.diagnose.symptoms import all_steps, is_rebuilt
from strobe.records.run import Record

RELOAD = "trainer.reload_dataloaders_every_n_epochs"
MOST_BESIDE = 2.0  # times the wait for new workers, of computing beside them, unless the kernel shows more
FEWEST = 3  # epochs: what fewer cost at their beginnings may be chance, but for what the kernel shows
BEGUN = 0.2  # of all waiting, in the first steps of epochs


@dataclass(frozen=True)
class Restarts:
    """What restarting workers costs, in seconds per mean step.

    Training waits for their first batches. While they fill their queues it also computes more slowly: each is a copy of
    the process, and memory is copied when it is written to, in the kernel (``copying``). ``between`` epochs, old
    workers end and a loader is made.
    """

    wait: float = 0.0
    begun: float = 0.0  # what the first steps of epochs wait beyond others, also where persistent workers would load
    phases: Mapping[str, float] = field(default_factory=dict)  # of computing
    between: float = 0.0
    copying: float = 0.0  # a part of computing

    def __bool__(self) -> bool:
        return self.seconds > 0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.wait + self.computing + self.between

    @property
    def computing(self) -> float:
        """In the step, without waiting."""
        return sum(self.phases.values())


def restarts(record: Record, step: Step) -> Restarts:
    """What restarting workers costs, those of validation included; nothing if they are not restarted."""
    costs = _restarts_of_training(record, step)
    if validation_restarts(record):  # they are forks of this process, too
        beside = _beside(record, 0.0) if not costs.computing else costs
        within = record.amount("validation_starts", "within") * record.amount("validation_starts", "kernel")
        more = max(0.0, within / all_steps(record)) if _forks(record) else 0.0
        phases = {**beside.phases, "forward": beside.phases.get("forward", 0.0) + more}
        costs = replace(costs, phases=phases, copying=beside.copying + more)
    between = min(costs.between + validation_restarts(record), record.amount("between_seconds", "between"))
    return replace(costs, between=between)


def _beside(record: Record, most: float) -> Restarts:
    """What computing beside new workers costs: so many seconds an epoch at ``most``, or what the kernel shows."""
    extra = _computed_longer(record)
    copying = max(0.0, record.amount("epoch_starts", "kernel")) if _forks(record) else 0.0
    total, share = sum(extra.values()), _share(record)
    kept = share * min(1.0, max(most, copying) / total) if total else 0.0
    phases = {phase: kept * seconds for phase, seconds in extra.items()}
    return Restarts(phases=phases, copying=min(kept * total, share * copying))


def _forks(record: Record) -> bool:
    """Whether workers are forks of the training process, which share its memory."""
    return record.setting("engine.multiprocessing_context") in (None, "fork")


def _computed_longer(record: Record) -> dict[str, float]:
    """Seconds that the first steps of a typical epoch compute longer than others, by phase."""
    known = record.amounts_of("epoch_starts", "extra").items()
    return {phase: max(0.0, more) for phase, more in known if phase not in ("data_wait", "callbacks")}


def _share(record: Record) -> float:
    """Of the steps that were measured, those that begin an epoch."""
    count, measured = record.amount("epoch_starts", "count"), record.amount("steps", "measured")
    return min(1.0, count / measured) if measured else 0.0


def validation_restarts(record: Record) -> float:
    """Seconds per step in which validations wait for workers that start anew; 0 if they have none, or keep them."""
    workers, key = record.whole("validation.restarted_workers"), "engine.persistent_workers"
    if workers is None:  # the application's loaders are alike; of a script's own loop nothing is known of validation
        alike = record.text("script") is None and record.setting(key) is False
        workers = record.count("num_workers") if alike else 0
    count, each = (record.amount("validation_starts", name) for name in ("count", "between"))
    return count * each / all_steps(record) if workers and count else 0.0


def _restarts_of_training(record: Record, step: Step) -> Restarts:
    """What it costs beside validation.

    Persistent workers start an epoch with empty queues too: one must make the first batch, and all of them fill their
    queues on the cores of training. Beyond ``MOST_BESIDE`` times the wait, what slows computing is something else.
    """
    if step.workers and (within := starts_within(record)):
        return _restarts_within(record, within)
    start, count = record.number("epoch_starts", "data_wait"), record.number("epoch_starts", "count")
    measured, reloaded = record.number("steps", "measured"), (record.whole(RELOAD) or 0) > 0
    anew = record.setting("engine.persistent_workers") is False or reloaded or is_rebuilt(record)
    if not step.workers or not anew or start is None or not count or not measured:
        return Restarts()
    share, usual = _share(record), usual_wait(record, step)
    wait = max(0.0, start - max(first_batch(record, step), usual))
    queued = min(
        step.workers * (record.whole("engine.prefetch_factor") or 2), record.number("batches_per_epoch") or math.inf
    )
    most = MOST_BESIDE * wait if count >= FEWEST else 0.0
    if step.cores:  # while workers fill their queues; where it is not known how long a batch computes, all may be that
        loader_cpu = _loader_cpu(record, step)
        filling = math.inf if loader_cpu is None else queued * step.images * loader_cpu / step.cores
        most = max(0.0, min(most, sum(_computed_longer(record).values()) - filling))
    between = record.amount("epoch_starts", "between") * share
    between *= 1.0 if reloaded else share_of(record, BETWEEN, ENDING_WORKERS)
    costs = replace(
        _beside(record, most),
        wait=wait * share,
        begun=max(0.0, start - usual) * share,
        between=min(max(0.0, between), record.amount("between_seconds", "between")),
    )
    return costs or Restarts()


def first_batch(record: Record, step: Step) -> float:
    """Seconds until a worker has made a batch while each makes its first; 0 if unknown, and all may be its start.

    Without a ceiling, by the processor time of forked workers: others import a program anew, which is no loading.
    Nor is it known where epochs end early: workers made batches that nobody took.
    """
    if step.loader:
        return step.images * step.pace * step.workers
    cpu, forked = _loader_cpu(record, step), _forks(record)
    count, measured = record.amount("epoch_starts", "count"), record.amount("steps", "measured")
    batches = record.number("batches_per_epoch") or 1.0
    if not cpu or not step.cores or not forked or (count - 1) * batches > measured:
        return 0.0
    return step.images * cpu * max(1.0, min(step.workers, batches) / step.cores)


def _loader_cpu(record: Record, step: Step) -> float | None:
    """Core-seconds per image that loading takes; None if unknown."""
    return cpu_by_children(record, step.images) if step.loader_cpu is None else step.loader_cpu


def starts_within(record: Record) -> float:
    """The share of steps in which workers were started, beside those that begin an epoch."""
    count, measured = (record.amount(*keys) for keys in (("worker_starts", "count"), ("steps", "measured")))
    return min(1.0, count / measured) if measured else 0.0


def _restarts_within(record: Record, share: float) -> Restarts:
    """Those of a loader that begins anew within an epoch, as one that is shorter than another beside it."""
    extra = {phase: share * more for phase, more in record.amounts_of("worker_starts", "extra").items()}
    wait = extra.pop("data_wait", 0.0)
    return Restarts(wait, wait, extra)


def usual_wait(record: Record, step: Step) -> float:
    """Seconds that a step waits, not counting the first of each epoch; 0 if there is no other."""
    start, count = record.amount("epoch_starts", "data_wait"), record.amount("epoch_starts", "count")
    measured, mean = record.amount("steps", "measured"), step.wait * step.images
    return max(0.0, (mean * measured - start * count) / (measured - count)) if measured > count else 0.0


def epoch_starts(record: Record, step: Step) -> float:
    """Seconds per mean step that the first steps of epochs wait beyond others, where no restarted worker explains it.

    0 where that is little of all waiting.
    """
    start, count = (record.amount("epoch_starts", name) for name in ("data_wait", "count"))
    extra = (start - usual_wait(record, step)) * count / (record.number("steps", "measured") or 1.0)
    return 0.0 if restarts(record, step).wait or extra < BEGUN * step.wait * step.images else extra


def steady_waiting(record: Record, step: Step) -> float:
    """The share of the step that waits for data, without what the first steps of epochs wait beyond others."""
    begun = restarts(record, step).wait + epoch_starts(record, step)
    return max(0.0, step.waiting - begun / step.images / step.length)
