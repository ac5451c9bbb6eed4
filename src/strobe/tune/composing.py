"""From what each choice reaches alone to every combination: the loader's side of a training times the model's.

A second of loading, or of computing, tells of a choice what a training of it would take twenty for. The model's
choices depend on each other: they are measured together, axis by axis on the best so far, and at the size of batch
that was found each once more the other way round.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

from strobe.diagnose.candidates import WORKERS, leaves_an_epoch, staying
from strobe.diagnose.foreign import MORE
from strobe.diagnose.predict import NOTABLE, Step, after, with_both, with_loader, with_model
from strobe.diagnose.symptoms import cores_of_a_rank, crowded, faster_precision, gpu_capability, worker_limit
from strobe.overrides import applied, key_of, split
from strobe.records.run import UNKNOWN_NOISE, Alternative, Figure, Record
from strobe.tune.dimensions import DIMENSIONS

BATCH_SIZE, ACCUMULATE = "data.batch_size", "trainer.accumulate_grad_batches"
RESIDENT_SHARE = 0.2  # of the budget, that loading a whole set into memory may take
EVEN = 1.01  # times as fast: less is chance, and of two such choices the one with fewer changes is taken
AS_GOOD = 1.02  # the same of two combinations, whose predictions add the noise of either side
STEEP = 1.1  # times as fast by doubling a batch: after the first that gains less, its other choices are measured
LARGER, LARGEST = (8, 4, 2), 64  # times as large a batch is tried: than the one before, and than the given one
FIXED = 0.2  # of what its images take, a step's fixed cost in the next batch to be tried: less is soon measured
LONGEST = 1 / 150  # of the budget: of a longer step, the hundred that a trial and its proof take leave no time

Changes = tuple[str, ...]
Measure = Callable[[str, Changes], Alternative | None]  # a side with changes; None if it fails, or time is up


@dataclass(frozen=True)
class Combination:
    """A choice of loading and one of computing, None for those of the run, and what they give together."""

    loading: Alternative | None
    computing: Alternative | None
    predicted: Figure

    @property
    def overrides(self) -> Changes:
        """Those of both sides, in the order of ``DIMENSIONS``."""
        both = [text for side in (self.loading, self.computing) if side for text in side.overrides]
        places = list(DIMENSIONS)
        return tuple(sorted(applied([], both), key=lambda text: places.index(key_of(text))))

    @property
    def images(self) -> float:
        """Of a step; 0 where computing is the run's own."""
        return (self.computing.images if self.computing else None) or 0.0

    @property
    def size(self) -> int:
        """How many dimensions it changes."""
        return len({DIMENSIONS[key_of(text)] for text in self.overrides})


class Composer:
    """Measures both sides of a run's choices, and predicts every combination.

    The run's own alternatives are taken from its ``record``. The dimensions in ``wanted`` may be changed; those in
    ``asked`` were asked for by name. ``budget``: seconds of the search.
    """

    def __init__(
        self,
        record: Record,
        step: Step,
        wanted: Collection[str],
        *,
        asked: Collection[str],
        measure: Measure,
        budget: float,
    ) -> None:
        self.record, self.step, self.wanted, self.asked = record, step, wanted, asked
        self.measure, self.budget = measure, budget
        self.loading, self.computing = _Side("loader", step.loader, step), _Side("model", step.model, step)
        for side in (self.loading, self.computing):
            for entry in record.alternatives(side.name):
                if all(DIMENSIONS.get(key) in wanted for key in entry.changes):
                    side.found[_key(entry.overrides)] = replace(entry, rate=_bounded(entry.rate))

    def combinations(self) -> list[Combination]:
        """All that change something, the best first: of those that are as good, the one that changes least."""
        own = self.computing.found.get(())
        best = self._compute() if own else ()
        self._load(self.computing.found.get(best))
        loaders, models = ([None, *side.changed()] for side in (self.loading, self.computing))
        possible = [self._together(loader, model) for loader in loaders for model in models if loader or model]
        possible = sorted((one for one in possible if one.overrides), key=lambda one: -one.predicted.median)
        as_good = [one for one in possible if one.predicted.median * AS_GOOD >= possible[0].predicted.median]
        first = min(as_good, key=lambda one: (one.size, one.images, -one.predicted.median), default=None)
        return [first, *(one for one in possible if one is not first)] if first else []

    def _together(self, loader: Alternative | None, model: Alternative | None) -> Combination:
        step = self.step
        if loader is None and model is not None:
            return Combination(None, model, with_model(step, model.rate, images=model.images, ratio=model.ratio))
        assert loader is not None
        workers = self._workers(loader)
        if model is None:
            return Combination(loader, None, with_loader(step, loader.rate, workers=workers, cpu=loader.cpu_seconds))
        cpus = loader.cpu_seconds, model.cpu_seconds
        predicted = with_both(step, loader.rate, model.rate, workers=workers, images=model.images, cpus=cpus)
        return Combination(loader, model, predicted)

    def _compute(self) -> Changes:
        """The changes of the model's side with which an image takes least."""
        debugging, precision, layout, fused, threads = self._binaries()
        side = self.computing
        best: Changes = ()
        both = [(*one, *other) for one in precision for other in layout]
        axes = [debugging, [*precision, *layout, *both], fused, threads]
        own, count = cores_of_a_rank(self.record), self.record.count("threads")
        if own and count and count > own:
            axes.insert(0, axes.pop())  # on too many threads the others take long, and tell little
        for values in axes:
            best = self._choose(side, best, values)
        best = self._choose(side, best, self._sizes(), until=STEEP)
        single = [value for axis in (precision, layout, fused, threads) for value in axis]
        flipped = [_key(text for text in best if text not in value) for value in single if set(value) <= set(best)]
        best = self._choose(side, best, [value for value in single if not set(value) <= set(best)], also=flipped)
        best = self._choose(side, best, self._sizes(beyond=best), until=EVEN)
        compiled, gpu = self.record.setting("model.compile"), bool(gpu_capability(self.record))
        if compiled is True or (compiled is False and (gpu or "compile" in self.asked)):
            best = self._choose(side, best, self._allowed([(f"model.compile={str(not compiled).lower()}",)]))
        return best

    def _binaries(self) -> tuple[list[Changes], ...]:
        """Anomaly detection, precision, memory layout, fused update and threads: what else each of them can be."""
        record = self.record
        precision = faster_precision(record)
        last, own, threads = record.setting("model.channels_last"), cores_of_a_rank(record), record.count("threads")
        counts: list[int] = []
        if own and threads:
            waits = self.step.waiting >= NOTABLE and record.has(WORKERS)  # for workers on the same cores, or soon
            many = threads > own or (self.step.cores is not None and (waits or crowded(record, self.step)))
            beside = max(self.step.workers, int(waits))
            fitting = {max(1, math.floor(own)), max(1, math.floor(own) - beside)}
            counts = [count for count in sorted(fitting) if count > threads or (many and count < threads)]
        values: tuple[list[Changes], ...] = (
            [("trainer.detect_anomaly=false",)] if record.setting("trainer.detect_anomaly") is True else [],
            [*([(f"trainer.precision={precision}",)] if precision else []), *self._matmul(precision)],
            [
                *([(f"model.channels_last={str(not last).lower()}",)] if isinstance(last, bool) else []),
                *self._benchmark(),
            ],
            self._updates(),
            [(f"threads={count}",) for count in counts],
        )
        return tuple(self._allowed(axis) for axis in values)

    def _updates(self) -> list[Changes]:
        """The fused update; of a script's optimizers without one foreach, which torch takes itself on a GPU only."""
        record = self.record
        if record.has("model.fused") and record.setting("model.fused") is not True:
            return [("model.fused=true",)]
        gpu = gpu_capability(record)
        return [("model.fused=foreach",)] if record.setting("model.foreach") is False and not gpu else []

    def _matmul(self, precision: str | None) -> list[Changes]:
        """TensorFloat-32, where the GPU would have bfloat16 too."""
        gpu, current = gpu_capability(self.record), self.record.setting("matmul_precision")
        return [("matmul_precision=high",)] if gpu and precision == "bf16-mixed" and current == "highest" else []

    def _benchmark(self) -> list[Changes]:
        """Letting cuDNN try its algorithms, where it is known not to: by the application's settings, or a script's."""
        record, keys = self.record, ("trainer.benchmark", "trainer.deterministic")
        off = record.has(keys[0]) and not any(map(record.setting, keys))
        off = record.setting("benchmark") is False if record.has("benchmark") else off
        return [("trainer.benchmark=true",)] if gpu_capability(record) and off else []

    def _sizes(self, beyond: Changes = ()) -> Iterator[Changes]:
        """Larger and larger batches while an epoch keeps a few; gradients are accumulated of fewer of them.

        The first is twice as large. Only those whose steps leave time to compare two trainings.
        """
        record, now = self.record, self.record.whole(BATCH_SIZE)
        accumulated = record.whole(ACCUMULATE) or 1
        largest = int(dict(map(split, beyond)).get(BATCH_SIZE, now or 0))
        size, before, times = largest, self._fastest(), 2
        while now:
            fitting = [size * by for by in LARGER if by <= times and self._fits(size * by, now)]
            if not fitting:
                return
            fewer = max(1, math.ceil(accumulated * now / fitting[0]))
            change = (f"{BATCH_SIZE}={fitting[0]}", *([f"{ACCUMULATE}={fewer}"] if fewer < accumulated else []))
            yield from self._allowed([change])
            times = _next(before / self._fastest(), fitting[0] / size)
            size, before = fitting[0], self._fastest()

    def _fits(self, size: int, now: int) -> bool:
        """Whether a batch is worth measuring."""
        seconds = size * self._fastest()
        return size <= now * LARGEST and leaves_an_epoch(self.record, size) and seconds <= LONGEST * self.budget

    def _fastest(self) -> float:
        """Seconds of an image, by the best way of computing so far."""
        return min(self._seconds(self.computing, key) for key in self.computing.found)

    def _load(self, computing: Alternative | None) -> None:
        """Measure ways of loading, if there is something to gain once computing takes what was found."""
        step, side, record = self.step, self.loading, self.record
        if () not in side.found:
            return
        if computing:
            step = after(step, computing.rate, images=computing.images, cpu=computing.cpu_seconds)
        if (1 - NOTABLE) * step.total < max(step.undisturbed, step.busy) + step.between:
            return
        side.step, current = step, record.text("choices", "loader")
        loaders = [(f"loader={name}",) for name in record.items("loaders") if name != current]
        loaders += [("loader.batched=true",)] if record.setting("loader.batched") is False else []
        loaders += [("loader.scale=device",)] if record.setting("loader.scale", "device") != "device" else []
        best: Changes = ()
        for values in (loaders, self._engines(step), self._worker_counts(step)):
            if "engine=resident" not in best:  # beside which no worker loads
                best = self._choose(side, best, self._allowed(values))

    def _worker_counts(self, step: Step) -> Iterator[Changes]:
        limit, record = worker_limit(self.record, self.step), self.record
        if limit is None or not record.has(WORKERS):
            return
        one = step.pace * max(1, step.workers)
        enough = math.ceil(1.1 * one / max(step.compute, 1e-9))
        more = (min(limit.workers, enough), min(limit.workers, 2 * enough))
        counts = dict.fromkeys([*(count for count in more if not 1 < count / max(1, step.workers) < MORE), 1, 0])
        changes = [(f"{WORKERS}={count}", *staying(record, step)) for count in counts if count != step.workers]
        yield from (one for one in changes if "workers" in self.asked or not multiplies(record, one))

    def _engines(self, step: Step) -> Iterator[Changes]:
        engine, limit = self.record.text("choices", "engine"), worker_limit(self.record, step)
        if engine is None:  # somebody else's script
            return
        images, each = self.record.number("train_images") or math.inf, step.pace or step.length
        if engine != "resident" and images * each <= RESIDENT_SHARE * self.budget:
            yield ("engine=resident",)
        if engine != "spdl" and find_spec("spdl") and limit:
            threads = (f"{WORKERS}={min(max(1, step.workers), limit.workers)}",)
            yield ("engine=spdl", *(threads if "workers" in self.wanted else ()))

    def _workers(self, entry: Alternative) -> int:
        """The workers beside training of a way of loading."""
        value = entry.changes.get(WORKERS, "")
        if entry.changes.get("engine") == "resident":
            return 0
        return int(value) if value.isdigit() else self.step.workers

    def _allowed(self, values: Iterable[Changes]) -> list[Changes]:
        return [value for value in values if all(DIMENSIONS[key_of(text)] in self.wanted for text in value)]

    def _choose(
        self,
        side: "_Side",
        best: Changes,
        values: Iterable[Changes],
        *,
        also: Sequence[Changes] = (),
        until: float | None = None,
    ) -> Changes:
        """The best of ``best`` with each of the values, of ``also``, and itself.

        ``until`` ends at the first that cannot be measured, or is not so many times as fast as the one before.
        """
        top = last = best
        for key in [*(_key(applied(best, value)) for value in values), *also]:
            if key not in side.found and (entry := self._measured(side, key)) is not None:
                side.found[key] = entry
            if key not in side.found:
                if until:
                    break
                continue
            if self._seconds(side, key) * EVEN < self._seconds(side, top):
                top = key
            if until and self._seconds(side, key) * until >= self._seconds(side, last):
                break
            last = key
        return top

    def _measured(self, side: "_Side", key: Changes) -> Alternative | None:
        """A choice, by its ratio to the run's own, which took turns with it or is measured next: machines drift."""
        entry = self.measure(side.name, key)
        own = self.measure(side.name, ()) if entry and entry.ratio is None else None
        if entry is None or (entry.ratio is None and own is None):
            return None
        scale = side.found[()].rate.median / (own or entry).rate.median
        rate = entry.ratio or entry.rate
        return replace(entry, rate=_bounded(rate, side.found[()].rate.median if entry.ratio else scale))

    def _seconds(self, side: "_Side", key: Changes) -> float:
        """What an image takes: of computing, with what is paid once a step; of a training with such a loader."""
        entry = side.found[key]
        if side is self.computing:
            return 1 / entry.rate.median + self.step.per_step * self.step.images / (entry.images or self.step.images)
        workers = self._workers(entry)
        return 1 / with_loader(side.step, entry.rate, workers=workers, cpu=entry.cpu_seconds).median


class _Side:
    """What was measured of one side: the run's own settings, and each change to them."""

    def __init__(self, name: str, own: Figure | None, step: Step) -> None:
        self.name, self.step = name, step
        cpu = step.loader_cpu if name == "loader" else step.model_cpu
        self.found: dict[Changes, Alternative] = (
            {(): Alternative(name, (), _bounded(own), cpu, step.images)} if own is not None else {}
        )

    def changed(self) -> list[Alternative]:
        """All but the run's own."""
        return [entry for key, entry in self.found.items() if key]


def multiplies(record: Record, overrides: Iterable[str]) -> bool:
    """Whether an IterableDataset would give its samples once from each worker, unless it shares them among these."""
    workers = dict(map(split, overrides)).get(WORKERS, "")
    more = workers.isdigit() and int(workers) > max(1, record.whole(WORKERS) or 0)
    return more and record.setting("engine.iterable") is True


def _next(gain: float, larger: float) -> int:
    """How many times as large the next batch is, after one ``larger`` times as large computed ``gain`` times as fast.

    It did ``(1 + x) / (1 + x / larger)`` times, where a step's fixed cost was ``x`` times what its images take.
    """
    fixed = (gain - 1) / max(1 - gain / larger, 1e-3) / larger
    return next((by for by in LARGER if fixed / by >= FIXED), LARGER[-1])


def _key(overrides: Iterable[str]) -> Changes:
    return tuple(sorted(overrides, key=key_of))  # a group before its settings, which choosing it would drop


def _bounded(rate: Figure, scale: float = 1.0) -> Figure:
    """A rate on another scale; of two or three blocks nobody knows the interval, and noise is taken as usual."""
    most = 1 + UNKNOWN_NOISE
    low, high = max(rate.low, rate.median / most), min(rate.high, rate.median * most)
    return Figure(rate.median * scale, low * scale, high * scale)
