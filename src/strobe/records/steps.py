"""What ``summary.json`` says of a run's ``steps.csv``."""

import logging
import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strobe.callbacks.columns import (
    AFTER,
    COLLECTING,
    CPU,
    DEVICE,
    FAULTS,
    FOLLOWED,
    GAPS,
    KERNEL,
    MAIN,
    MAPPING,
    MEMORY,
    OWNED,
    PHASES,
)
from strobe.measure.statistics import recorded, series
from strobe.measure.timing import WARMUP_STEPS
from strobe.records.step_table import NO_STEPS, StepTable, Values, read_table

log = logging.getLogger(__name__)

FEWEST_TO_TELL = 40  # steps: with fewer, unevenness is not reported
FEWEST_TO_GROW = 8  # likewise for slowing down: two in each quarter of the run
BLOCKS = 32  # of the run, at most, of which each pair is compared
LEAST_SIDE = 0.2  # of the run, on either side of where its steps become longer at once: a queue may fill until then
MORE = 1.1  # times as many images or updates, or as long: less is no other kind of step
CALLED = 0.1  # of a call that takes long: a hook that only checks whether there is work takes less
SHORTEST = 0.01  # seconds of a phase in all; below this the CPU clock is too coarse
FEWEST_SAMPLES = 4  # steps, of which one may be left out
FEWEST_FIGURES = 8  # of memory
FEWEST_EPOCHS = 3  # with fewer, what their beginnings cost, and a difference between them, may be chance
OPENING = 4  # steps of an epoch, beside which its workers may still be starting
STEADY = 1 / 3  # growth between any two quarters, as a share of the largest
LASTING = 0.75  # growth to the last quarter, as a share of that from the first: what starts up grows less and less
ASYNC_BLOCK = 20  # steps; on a GPU the host runs ahead, and a single step's time is that of its submission
FAR = 2.0  # times as long as a typical step


def measure_steps(path: Path, *, device: str | None = "cpu", samples: str = "images") -> dict[str, Any]:
    """The entries of ``summary.json`` that come from ``steps.csv``; see docs/runs.md.

    On a GPU `total` may exceed the phases, which are the host's: it ends a run, or an epoch, before its device does.

    Rate and phases leave out profiled steps, the first ``WARMUP_STEPS``, and later ones in which torch.compile
    compiled, unless these are most. Phases are means, which add up to the step; ``images_per_second`` is the median
    over steps, with a 95% interval, or over blocks of ``ASYNC_BLOCK`` steps if the ``device`` is no CPU and its own
    time was not measured. ``unit`` says what rates count: ``samples``, as the caller calls them, or ``steps`` where a
    batch did not tell its size. A damaged file has no steps, and the log says so.
    """
    try:
        rows = read_table(path)
    except ValueError as error:
        log.error("%s is damaged, so its steps are left out: %s", path, error)
        rows = NO_STEPS
    profiled = rows.get("profiled") != 0
    free = ~profiled
    free[:WARMUP_STEPS] = False
    compiling = free & (rows.get("compiled") != 0)
    recompiled = int(compiling.sum())
    if 2 * recompiled < free.sum():  # otherwise compiling is how it trains
        free &= ~compiling
    counted = rows.take(free)
    if not counted.has("images").all():  # then a step counts as one image
        images = np.ones(counted.places[-1] + 1)
        samples, counted = "steps", StepTable({**counted.columns, "images": images}, counted.places)
    measured, under_profiler = len(counted), int(profiled.sum())
    return {
        "steps": {"measured": measured, "profiled": under_profiler, "skipped": len(rows) - measured - under_profiler},
        "recompiled": recompiled,
        "unit": samples,
        "images_per_second": recorded(
            series(rates) if (rates := _rates(counted, 1 if device == "cpu" else ASYNC_BLOCK)) else None
        ),
        "overall_images_per_second": _overall_rate(rows, counted),
        "step_seconds": {"total": _mean(counted.lengths), **_means(counted, PHASES)},
        "device_seconds": _means(counted, DEVICE, "device_") if counted.is_told else None,
        "between_seconds": _means(rows, GAPS),
        "cores_used": _cores_used(counted, CPU),
        "main_used": _cores_used(counted, MAIN),
        "page_faults": _page_faults(counted),
        "garbage_seconds": _mean(counted.get(COLLECTING)),
        "garbage_steps": _half(counted.get(COLLECTING)),
        "uneven": _uneven(counted) if measured >= FEWEST_TO_TELL else None,
        "quarters": _quarters(counted, jumps=device == "cpu" or counted.is_told)
        if measured >= FEWEST_TO_GROW
        else None,
        "memory_growth": {name: _growth(rows, name) for name in MEMORY},
        "callbacks": _callbacks(counted),
        "after": _after(rows),
        "updates": _mean(counted.updates),
        "like": {
            name: _like(counted, int(one)) for name, one in zip(FOLLOWED, rows.get("optimizers")[1:3], strict=False)
        },
        "epoch_starts": _epoch_starts(rows),
        "worker_starts": _worker_starts(rows, free),
        "validation_starts": _validation_starts(rows),
        "first_step_seconds": float(rows.get("total")[0]) if len(rows) else None,
    }


def _rates(rows: StepTable, block: int) -> list[float]:
    """The rate of each block of steps, or of each step whose time on the device is known."""
    images, seconds, starts = rows.get("images"), rows.get("total"), np.arange(0, len(rows), block)
    if rows.is_told:
        device = rows.get("device_total")
        images, seconds = images[device != 0], device[device != 0]
    elif len(starts):
        images, seconds = np.add.reduceat(images, starts), np.add.reduceat(seconds, starts)
    rates: list[float] = (images / seconds).tolist()
    return rates


def _overall_rate(rows: StepTable, counted: StepTable) -> float | None:
    """The rate over the time that training takes: the counted steps, and their share of what lies between steps."""
    if not len(counted):
        return None
    seconds = counted.lengths.sum() + len(counted) * rows.gaps.mean()
    return float(counted.get("images").sum() / seconds)


def _mean(values: Values) -> float | None:
    return float(values.mean()) if len(values) else None


def _means(rows: StepTable, names: Sequence[str], prefix: str = "") -> dict[str, float | None]:
    return {name: _mean(rows.get(prefix + name)) for name in names}


def _cores_used(rows: StepTable, columns: Sequence[str]) -> dict[str, float | None]:
    """Cores that this process, or its main thread, used in each phase of the sampled steps.

    One that takes far longer than the others is left out: it is chance, such as Python's first full garbage collection.
    """
    sampled = _sampled(rows, columns[0])
    total = sampled.get("total")
    if len(sampled) >= FEWEST_SAMPLES:
        *_, second, longest = sorted(total)
        if longest > FAR * max(_median(total), second):
            sampled = sampled.take(total < longest)
    seconds = {phase: float(sampled.get(phase).sum()) for phase in PHASES}
    computed = {phase: float(sampled.get(column).sum()) for phase, column in zip(PHASES, columns, strict=True)}
    return {phase: computed[phase] / seconds[phase] if seconds[phase] >= SHORTEST else None for phase in PHASES}


def _page_faults(rows: StepTable) -> dict[str, float] | None:
    """Page faults in the computing phases of a mean step, and the kernel's share of their core-seconds."""
    sampled = _sampled(rows, FAULTS)
    computed = sum(float(sampled.get(f"cpu_{phase}").sum()) for phase in MAPPING)
    if computed < SHORTEST:
        return None
    return {"count": float(sampled.get(FAULTS).mean()), "kernel": float(sampled.get(KERNEL).sum()) / computed}


def _sampled(rows: StepTable, column: str) -> StepTable:
    """The steps that were asked for this, but for those that follow a pause, which always are; all if those are all."""
    asked = rows.has(column)
    some = asked & ~rows.resumes
    return rows.take(some if some.any() else asked)


def _uneven(rows: StepTable) -> dict[str, Any]:
    """How many steps take far longer than typical ones, what that costs per mean step, and mostly in which phase.

    ``begin_epochs`` of them are the first of an epoch. Steps are compared with those of as many updates: with
    accumulated gradients, or a second optimizer, steps with an update are longer by design.
    """
    counts, kind = np.unique(rows.updates, return_inverse=True)
    values = rows.phases
    usual = {
        name: np.array([_median(some[kind == number]) for number in range(len(counts))])[kind]
        for name, some in values.items()
    }
    long = values["total"] > FAR * usual["total"]
    extra = {name: float((values[name] - usual[name])[long].sum()) for name in values}
    return {
        "steps": int(long.sum()),
        "begin_epochs": int(rows.begin_epochs[long].sum()),
        "usual_seconds": _median(values["total"]),
        "long_seconds": _median(values["total"][long]) if long.any() else None,
        "extra_seconds": extra["total"] / len(rows),
        "garbage_seconds": float(rows.get(COLLECTING)[long].sum()) / len(rows),
        "phase": max(PHASES, key=lambda phase: extra[phase]) if long.any() else None,
        "files": None,  # of the batches that were waited for, where somebody looks at them
    }


def _worker_starts(rows: StepTable, counted: NDArray[np.bool_]) -> dict[str, Any] | None:
    """How many of the ``counted`` steps start loader workers, beside those that follow a pause or begin an epoch.

    ``extra`` are seconds of each phase, without waits for other ranks: the mean of such a step beyond the median of
    others; where all start some, only what they wait for data. None with fewer than ``FEWEST_EPOCHS``.
    """
    pause = rows.resumes
    pause[:1] = True
    some = counted & ~pause & (rows.get("workers_started") != 0)
    others = counted & ~pause & ~some
    if some.sum() < FEWEST_EPOCHS:
        return None
    extra: dict[str, float] = {}
    for phase in PHASES if others.any() else PHASES[:1]:
        own = rows.get(phase) - rows.get(f"wait_{phase}")
        extra[phase] = max(0.0, float(own[some].mean()) - (_median(own[others]) if others.any() else 0.0))
    return {"count": int(some.sum()), "extra": extra}


def _validation_starts(rows: StepTable) -> dict[str, Any]:
    """How many validations there were, and the mean seconds beside each that are nobody's hook.

    Most of them pass before it, until its loader gives a first batch. ``within`` an epoch as many were, after which a
    step's computing is in the ``kernel`` for so much longer than others.
    """
    validated = rows.get("validation") > 0
    gaps, after = (rows.get("between") - _named(rows))[validated], np.append(False, validated[:-1]) & ~rows.begin_epochs
    within = {"within": int(after.sum()), "kernel": rows.more_in_kernel(after)}
    return {"count": int(validated.sum()), "between": float(gaps.mean()) if len(gaps) else None} | within


def _named(rows: StepTable) -> Values:
    """Seconds between each step and the next one in which a callback's or the module's hook ran."""
    return sum((rows.get(name) for name in rows.columns if name.startswith(AFTER)), np.zeros(len(rows)))


def _epoch_starts(rows: StepTable) -> dict[str, Any]:
    """How long the first step of an epoch waits for data, and what the start of an epoch costs beyond its other steps.

    The run's first epoch, and those with a profiled step, are left out. ``extra`` are seconds of each phase, without
    waits for other ranks, summed over the first steps of a typical epoch: ``OPENING`` of them, or half in a shorter
    one; None without any. Steps are compared with those of as many images and updates.
    ``between`` lies before them, and is neither a validation nor anybody's hook. ``kernel`` are seconds of the first
    step's computing in the kernel, as where memory is copied since workers were forked, beyond those of other steps.
    """
    epoch, profiled = rows.get("epoch"), rows.get("profiled") != 0
    starts = np.flatnonzero(np.diff(epoch)) + 1  # of all epochs but the first
    ends = np.append(starts, len(rows))[1:]
    epochs = [(start, end) for start, end in zip(starts, ends, strict=True) if not profiled[start:end].any()]
    openings = [(start, start + min(OPENING, (end - start) // 2), end) for start, end in epochs]
    openings = [(start, rest, end) for start, rest, end in openings if rest > start]
    extra: dict[str, float] = {}
    if openings:
        kinds, kind = np.unique([rows.get("images", -1.0), rows.updates], axis=1, return_inverse=True)
        kind = kind.ravel()  # NumPy 2.0 gives a row
        later = np.zeros(len(rows), dtype=bool)
        for _, rest, end in openings:
            later[rest:end] = True
        alike = [np.flatnonzero(later & (kind == number)) for number in range(kinds.shape[1])]
        for phase in PHASES:
            own = rows.get(phase) - rows.get(f"wait_{phase}")
            usual = np.array([_median(own[some]) if len(some) else np.nan for some in alike])
            more = np.nan_to_num(own - usual[kind])
            extra[phase] = _median(np.array([more[start:rest].sum() for start, rest, _ in openings]))
    gaps = (rows.get("between") - _named(rows))[starts - 1]
    return {
        "count": len(epochs),
        "data_wait": _mean(rows.get("data_wait")[[start for start, _ in epochs]]) if epochs else None,
        "extra": extra or None,
        "between": max(0.0, float(gaps.mean())) if len(gaps) else None,
        "kernel": rows.more_in_kernel(rows.begin_epochs),
    }


def _half(values: Values) -> int:
    """How many of the largest make up half of the sum."""
    sums = np.append(0.0, np.sort(values)[::-1].cumsum())
    return int((sums < sums[-1] / 2).sum())


def _like(rows: StepTable, followed: int) -> dict[str, float] | None:
    """The share of each phase that is of steps like one whose operations were followed; None if all are like it.

    Where optimizers step in turns in different steps, as in some GANs, others have other operations.
    """
    stepped = rows.get("optimizers")
    like = (stepped == 0) | (stepped == followed)
    if not followed or like.all() or not like[stepped != 0][-FEWEST_TO_TELL:].any():  # or they came one after the other
        return None
    spent = {phase: rows.get(phase) for phase in PHASES}
    return {phase: float(each[like].sum() / max(each.sum(), 1e-9)) for phase, each in spent.items()}


def _quarters(rows: StepTable, *, jumps: bool) -> dict[str, Any]:
    """A typical step of each quarter of the run, and the phase that grew most from the first to the last.

    ``rising``: of all pairs of that phase's steps, or blocks of them, the share in which the later one takes longer; of
    pairs in different epochs, if there are ``FEWEST_EPOCHS``. ``jump``: see :func:`_jump`; None unless ``jumps``.
    """
    size = len(rows) // 4
    parts = {
        name: [_median(values[start : start + size]) for start in range(0, 4 * size, size)]
        for name, values in rows.phases.items()
    }
    phase, ends = max(PHASES, key=lambda phase: parts[phase][-1] - parts[phase][0]), _ends(rows)
    values, epoch = rows.spent(phase), rows.get("epoch")
    apart = len(np.unique(epoch)) >= FEWEST_EPOCHS
    blocks = [(epoch[start], _median(values[start:end])) for start, end in pairwise(ends)]
    pairs = [(one[1], two[1]) for one, two in combinations(blocks, 2) if not apart or one[0] != two[0]]
    return {
        "seconds": parts["total"],
        "phase": phase,
        "phase_seconds": parts[phase],
        "rising": sum(after > before for before, after in pairs) / len(pairs),
        "jump": _jump(rows, ends) if jumps and len(rows) >= FEWEST_TO_TELL else None,
    }


def _ends(rows: StepTable) -> list[int]:
    """Where blocks of steps begin and end, at most ``BLOCKS``."""
    count = min(len(rows), BLOCKS)
    return [len(rows) * place // count for place in range(count + 1)]


def _jump(rows: StepTable, ends: Sequence[int]) -> dict[str, Any] | None:
    """From which ``step`` on steps take longer, to the run's end; typical ones before and after; the phase that grew.

    None if they do not, if steps get slower before or after that too, or if blocks of the two sides are not clearly
    apart. With more images, or updates, a step is longer by design.
    """
    total = np.maximum(rows.spent("total"), 1e-9)
    blocks = np.log([_median(total[start:end]) for start, end in pairwise(ends)])
    count = len(blocks)
    least = math.ceil(LEAST_SIDE * count)
    split = max(
        range(least, count - least + 1),
        key=lambda place: place * (count - place) * (blocks[place:].mean() - blocks[:place].mean()) ** 2,
    )
    before, after = blocks[:split], blocks[split:]
    rise = _median(after) - _median(before)
    drift = max(abs(_median(side[len(side) // 2 :]) - _median(side[: len(side) // 2])) for side in (before, after))
    apart = float(np.quantile(after, 0.1) - np.quantile(before, 0.9))
    if rise < math.log(MORE) or drift > rise / 4 or apart < rise / 2:
        return None
    near = slice(ends[split - 1], ends[split + 1])
    long = total[near] > math.exp(_median(before) + rise / 2)
    wrong = np.append(0, long.cumsum()) + np.append((~long)[::-1].cumsum()[::-1], 0)  # if the jump is at each of these
    first = ends[split - 1] + int(wrong.argmin())
    if any(each[first:].mean() > MORE * each[:first].mean() for each in (rows.get("images"), rows.updates)):
        return None
    spent = rows.phases.items()
    parts = {name: [_median(values[:first]), _median(values[first:])] for name, values in spent}
    phase = max(PHASES, key=lambda phase: parts[phase][1] - parts[phase][0])
    step = int(rows.get("step")[first])
    return {"step": step, "seconds": parts["total"], "phase": phase, "phase_seconds": parts[phase]}


def _median(values: Values) -> float:
    return float(np.median(values))


def _growth(rows: StepTable, name: str) -> dict[str, Any] | None:
    """How much the memory of a process grew from the first quarter of its figures to the last, and whether steadily.

    None for fewer than ``FEWEST_FIGURES``.
    """
    there = rows.has(name)
    moments, held = (rows.get("total") + rows.gaps).cumsum()[there], rows.get(name)[there]
    if (size := len(held) // 4) < FEWEST_FIGURES // 4:
        return None
    times, means = (values[-4 * size :].reshape(4, size).mean(1) for values in (moments, held))
    grown = means[1:] - means[:-1]
    return {
        "first_bytes": float(means[0]),  # what a process takes as it starts is no growth
        "last_bytes": float(means[-1]),
        "seconds": float(times[-1] - times[0]),
        "bytes_per_second": float((means[-1] - means[0]) / (times[-1] - times[0])),
        "steady": bool(grown.min() > grown.max() * STEADY and grown[-1] > grown[0] * LASTING),
    }


def _callbacks(rows: StepTable) -> list[dict[str, Any]]:
    """Seconds per step of each callback, logger and module with hooks in a step, the longest first."""
    hooks = []
    for column in rows.columns:
        if column.startswith(OWNED) and rows.has(column)[:1].any():
            values, name = rows.get(column), column.removeprefix(OWNED)
            typical = np.sort(values)[-max(1, _half(values))]
            figures = {"mean": float(values.mean()), "longest": float(values.max())}
            hooks.append({"name": name, **figures, "calls": int((values > CALLED * typical).sum())})
    return sorted(hooks, key=lambda one: -one["mean"])


def _after(rows: StepTable) -> list[dict[str, Any]]:
    """Seconds per step of each callback's, and the module's, hooks between steps, the longest first."""
    columns = [column for column in rows.columns if column.startswith(AFTER) and rows.has(column)[:1].any()]
    means = {column: float(rows.get(column).mean()) for column in columns}
    entries = [{"name": column.removeprefix(AFTER), "mean": mean} for column, mean in means.items() if mean]
    return sorted(entries, key=lambda one: -float(str(one["mean"])))
