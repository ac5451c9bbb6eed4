"""The model of a step: how fast training would be with another loader, other computing, or less of something.

Everything is in seconds per image, over all ranks, so that steps of different sizes compare. A step waits for its
batch and computes (everything that is not waiting). A loader in the training process is waited for whole; workers
load meanwhile, so that the slower side sets the pace, except for the first batch of an epoch. Where both run on the
same cores, work is conserved: what the loader computes beyond the cores that the model leaves idle is taken from the
model.

A prediction has a likely, a best and a worst case, which differ where the overlap is unknown. Around these stands the
noise of the step, the drift of the machine, and the noise of every ceiling that was used by what moving it to the ends
of its interval does to the result, added in quadrature as independent errors are. At last it is ``calibrated``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from strobe.diagnose.calibrated import calibrated
from strobe.records.run import UNKNOWN_NOISE, Alternative, Figure, Record

WORTH = 1.03  # a smaller speed-up is within the variation from run to run
NOTABLE = 0.05  # of a step: less is not worth the effort, and hard to tell from noise
MOST_NOISE = 2.0  # relative; the interval of very few steps has no bounds, and more noise says no more

Cases = tuple[float, float, float]  # best, likely, worst: seconds per image


@dataclass(frozen=True)
class Step:
    """The mean step of a run, in seconds per image; see the module's docstring."""

    images: float  # in a step, over all ranks
    wait: float
    compute: float  # the rest of the step
    per_step: float  # what of `compute` is not in the model's ceiling, and is paid once a step: callbacks
    between: float  # validation and what else lies between steps
    busy: float  # of a GPU, which works on while the host waits: no step is shorter; 0 on a CPU
    noise: float  # relative
    drift: float  # by which the machine's speed changed within the minutes of measuring, relative
    workers: int  # loader processes of a rank
    loader: Figure | None  # ceilings, images/s
    model: Figure | None
    cores: float | None  # that loader and model compete for; None when they do not
    loader_cpu: float | None  # core-seconds
    model_cpu: float | None
    ranks: int = 1
    epoch: float = math.inf  # steps

    @property
    def length(self) -> float:
        """Of the step itself."""
        return self.wait + self.compute

    @property
    def seconds(self) -> float:
        """Of the step itself, not of an image."""
        return self.length * self.images

    @property
    def total(self) -> float:
        """Of training: the step, and what lies between it and the next."""
        return self.length + self.between

    @property
    def waiting(self) -> float:
        """The share of the step that would be saved without waiting; waiting while a GPU is busy does not count."""
        return max(0.0, min(self.wait, self.length - self.busy)) / self.length

    @property
    def spare(self) -> float:
        """Seconds in which a GPU has no work: all that its host does costs no more. Without a GPU nothing bounds it."""
        return max(0.0, self.length - self.busy) * self.images if self.busy else math.inf

    @property
    def loading(self) -> float | None:
        """What the loader took in the run itself; None if training never waited for workers, which hides it."""
        if not self.workers:
            return self.wait
        return self.length if self.waiting >= NOTABLE else None

    @property
    def pace(self) -> float:
        """What the loader takes alone, or took in the run; 0 if neither is known."""
        return 1 / self.loader.median if self.loader else self.loading or 0.0

    @property
    def undisturbed(self) -> float:
        """Computing without workers on the same cores."""
        if self.cores is None or not self.workers or self.model is None:
            return self.compute
        return min(self.compute, 1 / self.model.median + self.per_step)


def step_of(record: Record) -> Step | None:
    """The mean step of a run; None if no step was measured."""
    seconds = {name: max(0.0, value) for name, value in record.amounts_of("step_seconds").items()}
    length = seconds.get("total", 0.0)
    wait = min(seconds.get("data_wait", 0.0), length)
    between = sum(max(0.0, value) for value in record.amounts_of("between_seconds").values())
    images = _images(record, length + between)
    if length <= wait or images <= 0:
        return None
    devices, ranks = record.count("devices") or 1, max(1, record.count("world_size") or 1)
    cores, shared = record.number("environment", "usable_cores"), record.flag("ceilings", "shared_cores")
    if shared is None:  # no ceiling was measured
        shared = record.on_cpu
    busy = max(0.0, min(_busy(record) or 0.0, length))
    spare = length - busy if busy else length  # on a GPU the rest of callbacks is a wait for it
    return Step(
        images=images,
        wait=wait / images,
        compute=(length - wait) / images,
        per_step=min(seconds.get("callbacks", 0.0), length - wait, spare) / images,
        between=between / images,
        busy=busy / images,
        noise=_noise(record),
        drift=record.amount("ceilings", "drift"),
        workers=max(0, record.count("num_workers") or 0),
        loader=record.rate("loader"),
        model=record.rate("model"),
        cores=cores * max(1.0, ranks / devices) if cores and shared else None,
        loader_cpu=_loader_cpu(record, ranks * wait / images),
        model_cpu=record.number("ceilings", "cpu_seconds", "model"),
        ranks=ranks,
        epoch=record.number("batches_per_epoch") or math.inf,
    )


def with_loader(step: Step, rate: Figure, *, workers: int, cpu: float | None = None) -> Figure:
    """The speed-up by a loader that alone reaches ``rate``; ``workers`` per rank, ``cpu`` core-seconds per image."""

    def cases(new: float, old: float) -> Cases:
        # In the run itself caches and files were cold, or others busy: the new loader may suffer from that as the old
        # one did, for as long or by as much.
        lost = 0.0 if step.loading is None or step.loader is None else step.loading - 1 / old
        slowed = 1 / new + max(lost, lost * old / new)
        likely = (slowed + 1 / new + lost * old / new) / 2
        if not workers and step.workers:  # what slowed the workers may have been the model
            return _spread(step.undisturbed + 1 / new, step.compute + 1 / new)
        quick, slow = min(1 / new, likely), max(1 / new, slowed)
        if not workers:
            return step.compute + quick, step.compute + likely, step.compute + slow
        first = 0.0 if step.workers else workers / new / step.epoch  # a worker makes it while nobody trains
        if step.cores is None:
            return _spread(max(quick, step.compute) + first, max(slow, step.compute) + first)
        used = cpu if cpu is not None else workers * step.ranks / new
        best, likely, worst = _shared(step, quick, slow, used, workers)
        return best + first, likely + first, worst + first

    return _speedup(step, lambda new, old: _floor(cases(new, old), step.busy), rate, step.loader or rate)


def with_model(step: Step, rate: Figure, *, images: float | None = None, ratio: Figure | None = None) -> Figure:
    """The speed-up by computing that alone reaches ``rate`` images/s, in steps of ``images`` (None: as now).

    ``ratio``, to the run's own model in turns, is more certain than the two rates, and free of drift.
    """
    costs, work, own = _computing(step, images or step.images)

    def cases(new: float, old: float) -> Cases:
        # What the step holds beyond the replayed one stays as it is, or shrinks with it.
        added, scaled = sorted((max(0.0, work - 1 / old) + 1 / new, work * old / new))
        best, likely, worst = (_beside_loader(step, costs + seconds) for seconds in _spread(added, scaled))
        return _floor((best, likely, worst), step.busy * old / new)

    if ratio is not None and step.model is not None:
        return _speedup(replace(step, drift=0.0), lambda times, old: cases(times * old, old), ratio, own)
    return _speedup(step, cases, rate, own)


def after(step: Step, rate: Figure, *, images: float | None = None, cpu: float | None = None) -> Step:
    """The step that :func:`with_model` predicts, to predict further changes from."""
    costs, work, own = _computing(step, images or step.images)
    compute = costs + (max(0.0, work - 1 / own.median) + 1 / rate.median + work * own.median / rate.median) / 2
    wait, busy = _beside_loader(step, compute) - compute, step.busy * own.median / rate.median
    return replace(
        step,
        images=images or step.images,
        wait=wait,
        compute=compute,
        per_step=costs,
        busy=busy,
        model=rate,
        model_cpu=cpu if cpu or step.model_cpu is None else step.model_cpu * own.median / rate.median,
    )


def with_both(
    step: Step, loader: Figure, model: Figure, *, workers: int, images: float | None, cpus: tuple[float | None, ...]
) -> Figure:
    """The speed-up by another loader and another model at once; ``cpus``: core-seconds per image of each."""
    first, later = with_model(step, model, images=images), after(step, model, images=images, cpu=cpus[1])
    second = with_loader(later, loader, workers=workers, cpu=cpus[0])
    middle = step.total / later.total * second.median
    down = math.hypot(*(math.log(one.median / one.low) for one in (first, second)))
    return Figure(middle, middle * math.exp(-down), middle * first.high / first.median * second.high / second.median)


def without(step: Step, *, compute: float = 0.0, pause: float = 0.0, wait: float = 0.0, between: float = 0.0) -> Figure:
    """The speed-up if each step loses this many seconds of computing, of a callback, of waiting, or between steps.

    After a callback (``pause``) a step starts with cold caches and sleeping threads. Without it, the rest is at best as
    fast as the replayed step; that extra gain is at most what the callback itself took.
    """

    def cases(share: float) -> Cases:
        gone = {name: share * seconds / step.images for name, seconds in removed.items()}
        rest = max(step.compute - gone["compute"] - gone["pause"], 1e-3 * step.compute)
        warm = 1 / step.model.median + max(0.0, step.per_step - gone["pause"]) if pause and step.model else rest
        warm = max(warm, rest - gone["pause"])
        lengths = (_beside_loader(step, seconds) if rest < step.compute else step.length for seconds in (warm, rest))
        saved = min(gone["wait"], step.wait) + min(gone["between"], step.between)
        ends = [min(max(length, step.busy), step.length) - saved for length in lengths]
        return _spread(min(ends), ends[1])

    removed = {"compute": compute, "pause": pause, "wait": wait, "between": between}
    return _speedup(replace(step, drift=0.0), cases, Figure(1.0, max(0.0, 1 - step.noise), 1 + step.noise))


def up_to(most: Figure) -> Figure:
    """Between no gain and this one, where no more is known."""
    return Figure(math.sqrt(most.median), 1.0, most.high)


def without_waiting(step: Step) -> Figure:
    """Between no gain and that of a perfect loader, for a finding without a measured remedy."""
    least = max(step.compute, step.busy)
    return _speedup(step, lambda _: _spread(least, step.length), Figure(1.0, 1.0, 1.0))


def faster(record: Record, step: Step, key: str) -> list[Alternative]:
    """The model's measured alternatives that change only this key, and are faster beyond noise.

    That is in turns, or because the two intervals do not overlap.
    """

    def is_faster(entry: Alternative) -> bool:
        if entry.ratio is not None:
            return entry.ratio.low > 1
        return step.model is not None and entry.rate.low > step.model.high

    return [entry for entry in record.alternatives("model") if entry.changes.keys() == {key} and is_faster(entry)]


def saved_by(record: Record, step: Step, key: str) -> float:
    """Seconds of a step that the model alone takes less with the best other value of a key; 0 without one."""
    if step.model is None:
        return 0.0
    own, alternatives = step.model.median, faster(record, step, key)
    ratios = [one.ratio.median if one.ratio else one.rate.median / own for one in alternatives]
    return step.images / own * (1 - 1 / max(ratios, default=1.0))


def _computing(step: Step, images: float) -> tuple[float, float, Figure]:
    """Per image: costs paid once a step, and the rest of computing; and the model's ceiling, or the run's rate."""
    work = max(step.compute - step.per_step, 1e-3 * step.compute)
    own = step.model or Figure(1 / work, 1 / work / (1 + step.noise), 1 / work * (1 + step.noise))
    return step.per_step * step.images / images, work, own


def _beside_loader(step: Step, compute: float) -> float:
    """The step with this computing: loading in the training process adds to it, workers overlap with it."""
    if not step.workers:
        return compute + step.wait
    pace = min(step.pace, step.length)  # the run itself shows that its loader takes no longer
    unexplained = max(0.0, step.wait - max(0.0, pace - step.compute))  # uneven batches, cold files: it stays
    return max(compute, pace) + unexplained


def _shared(step: Step, quick: float, slow: float, cpu: float, workers: int) -> Cases:
    """Workers on the model's own cores, from a loader that takes ``quick`` to ``slow``, ``cpu`` of it computing."""
    cores, alone = step.cores or 1.0, step.undisturbed
    own = cores / step.ranks
    busy = own if step.model_cpu is None else min(own, step.model_cpu / alone / step.ranks)  # cores, by computing

    def taken(seconds: float) -> float:
        return max(0.0, seconds - (cores - busy * step.ranks) * alone)

    # At best workers use what is idle, and all cores share the rest; at worst each rank's are paused while any worker
    # computes.
    best = max(quick, alone + taken(cpu) / cores)
    worst = max(slow, alone + taken(cpu) / step.ranks)
    if step.workers and step.loader_cpu is not None and step.length > alone:  # as the run shows it
        on_cores = min(cores, max(float(step.ranks), taken(step.loader_cpu) / (step.length - alone)))
        return best, min(worst, max((quick + slow) / 2, alone + taken(cpu) / on_cores)), worst
    # A worker does not wait until a core is idle. While computing uses all, it takes one: for a share of the time that
    # is largest if one core suffices for the rest, and smallest if that needs all but one.
    most = 1.0 if own <= 1 else max(0.0, (busy - 1) / (own - 1))
    least = max(0.0, busy - max(1.0, own - 1)) if own > 1 else 1.0
    lost, all_lost = (max(taken(cpu), share * cpu) for share in ((least + most) / 2, most))
    worst = max(slow, alone + all_lost / step.ranks)
    beside = max((quick + slow) / 2, _beside_workers(alone, lost, min(float(workers), own)))
    return best, min(max(best, beside), worst), worst


def _beside_workers(alone: float, taken: float, places: float) -> float:
    """Computing that takes so long ``alone``, beside workers that compute for ``taken``, each on a core of its own.

    A core gives half of itself to each, and all threads of an operation wait for the slowest: it takes twice as long
    while any of so many cores (``places``) has a worker, which by chance happens at the same time.
    """
    length = alone + taken
    for _ in range(20):  # which converges
        busy = max(1e-9, min(1.0, 2 * taken / (places * length)))
        length = alone + taken * (1 - (1 - busy) ** places) / (places * busy)
    return length


def _spread(best: float, worst: float) -> Cases:
    return best, (best + worst) / 2, worst


def _floor(cases: Cases, least: float) -> Cases:
    best, likely, worst = cases
    return max(best, least), max(likely, least), max(worst, least)


def _speedup(step: Step, cases: Callable[..., Cases], *inputs: Figure) -> Figure:
    """The old time over the new one; ``cases`` computes the new step's from the values of ``inputs``."""
    values = [item.median for item in inputs]

    def moved(place: int, value: float) -> list[float]:
        return [*values[:place], value, *values[place + 1 :]]

    def times(case: int, at: list[float]) -> float:
        return cases(*at)[case] + step.between

    def noise(case: int) -> float:
        middle = times(case, values)
        errors = [step.noise, step.drift]
        for place, item in enumerate(inputs):
            ends = (times(case, moved(place, end)) for end in (item.low, item.high))
            errors.append(max(abs(math.log(end / middle)) for end in ends))
        return math.exp(math.hypot(*errors))  # independent ones

    best, likely, worst = (step.total / times(case, values) for case in range(3))
    return calibrated(Figure(likely, worst / noise(2), best * noise(0)))


def _images(record: Record, seconds: float) -> float:
    """Images of a mean step, of all ranks; an epoch's last batch may be smaller than ``batch_size``."""
    rate = record.number("overall_images_per_second")
    if rate:
        return rate * seconds
    return record.amount("batch_size") * (record.count("world_size") or 1)


def _loader_cpu(record: Record, wait: float) -> float | None:
    """Core-seconds per image of loading; without a ceiling, those seen in the training process."""
    used = record.number("cores_used", "data_wait")
    seen = None if record.count("num_workers") or used is None else used * wait
    known = record.number("ceilings", "cpu_seconds", "loader")
    return seen if known is None else known


def cpu_by_children(record: Record, images: float) -> float | None:
    """Core-seconds per image of the processes that training has started, as if all were for loading; None if unknown.

    Args:
        images: of a step.
    """
    share, seconds = (record.number("machine", name) for name in ("children", "seconds"))
    cores = record.number("environment", "usable_cores")
    count = images * sum(record.amounts_of("steps").values())
    return share * seconds * cores / count if share and seconds and cores and count else None


def _busy(record: Record) -> float | None:
    """Seconds of a step in which a GPU works: from a trace, or else from events, which count starving as work."""
    if (given := record.number("trace_evidence", "busy_seconds")) is not None:
        return given
    share, seconds = (record.number("trace_evidence", name) for name in ("device_busy", "step_seconds"))
    if share is not None and seconds is not None:
        return share * seconds
    total, idle = (record.number("device_seconds", name) for name in ("total", "idle"))
    return None if total is None else total - (idle or 0.0)


def idle_of_device(record: Record) -> float:
    """Seconds of a mean step in which its GPU has no work; 0 if unknown."""
    total = record.seconds("total")
    return 0.0 if (busy := _busy(record)) is None else max(0.0, total - busy)


def _noise(record: Record) -> float:
    """Half the width of the rate's interval, as a share of the rate."""
    middle, low, high = (record.number("images_per_second", name) for name in ("median", "low", "high"))
    if not middle or low is None or high is None:
        return UNKNOWN_NOISE
    return min(max(0.0, (high - low) / (2 * middle)), MOST_NOISE)
