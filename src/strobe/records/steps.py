"""A run's ``steps.csv``: its rows, and what ``summary.json`` says of them."""

import csv
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, combinations, compress, groupby, pairwise
from pathlib import Path
from typing import Any

from strobe.callbacks.columns import AFTER, COLLECTING, CPU, DEVICE, GAPS, MAIN, MEMORY, OWNED, PHASES
from strobe.measure.timing import WARMUP_STEPS

FEWEST_TO_TELL = 40  # steps: with fewer, unevenness is not reported
FEWEST_TO_GROW = 8  # likewise for slowing down: two in each quarter of the run
BLOCKS = 32  # of the run, at most, of which each pair is compared
CALLED = 0.1  # of the longest: a hook that only checks whether there is work takes less
SHORTEST = 0.01  # seconds of a phase in all; below this the CPU clock is too coarse
FEWEST_SAMPLES = 4  # steps, of which one may be left out
FEWEST_FIGURES = 8  # of memory
LONGEST_ROW = 4096  # bytes: from so many for each row that is wanted, the end of a file is read
FEWEST_EPOCHS = 3  # with fewer, what their beginnings cost may be chance
OPENING = 4  # steps of an epoch, beside which its workers may still be starting
STEADY = 1 / 3  # growth between any two quarters, as a share of the largest
ASYNC_BLOCK = 20  # steps; on a GPU the host runs ahead, and a single step's time is that of its submission
FAR = 2.0  # times as long as a typical step


def measure_steps(path: Path, *, device: str | None = "cpu", samples: str = "images") -> dict[str, Any]:
    """The entries of ``summary.json`` that come from ``steps.csv``; see docs/runs.md.

    Profiled steps, the first ``WARMUP_STEPS``, and later ones in which torch.compile compiled, unless these are most,
    are in neither rate nor phases. Phases are means, which add up
    to the step; ``images_per_second`` is the median over steps, with a 95% interval, or over blocks of ``ASYNC_BLOCK``
    steps if the ``device`` is no CPU and its own time was not measured. ``unit`` says what rates count: ``samples``, as
    the caller calls them, or ``steps`` where a batch did not tell its size.
    """
    from strobe.measure.statistics import recorded, series  # which import NumPy

    rows = read_rows(path)
    counted = [row for row in rows[WARMUP_STEPS:] if not row["profiled"]]
    settled = [row for row in counted if not row.get("compiled")]
    recompiled = len(counted) - len(settled)
    if recompiled < len(settled):  # otherwise compiling is how it trains
        counted = settled
    if not _has_images(counted):
        samples, counted = "steps", [row | {"images": 1.0} for row in counted]
    profiled = sum(1 for row in rows if row["profiled"])
    return {
        "steps": {"measured": len(counted), "profiled": profiled, "skipped": len(rows) - len(counted) - profiled},
        "recompiled": recompiled,
        "unit": samples,
        "images_per_second": recorded(
            series(rates) if (rates := _rates(counted, 1 if device == "cpu" else ASYNC_BLOCK)) else None
        ),
        "overall_images_per_second": _overall_rate(rows, counted),
        "step_seconds": _means(counted, ("total", *PHASES)),
        "device_seconds": _means(counted, DEVICE, "device_") if counted and "device_total" in counted[-1] else None,
        "between_seconds": {
            name: statistics.fmean(row.get(name, 0.0) for row in rows) if rows else None for name in GAPS
        },
        "cores_used": _cores_used(counted, CPU),
        "main_used": _cores_used(counted, MAIN),
        "garbage_seconds": statistics.fmean(row.get(COLLECTING, 0.0) for row in counted) if counted else None,
        "garbage_steps": _half([row.get(COLLECTING, 0.0) for row in counted]),
        "uneven": _uneven(counted) if len(counted) >= FEWEST_TO_TELL else None,
        "quarters": _quarters(counted) if len(counted) >= FEWEST_TO_GROW else None,
        "memory_growth": {name: _growth(rows, name) for name in MEMORY},
        "callbacks": _callbacks(counted),
        "after": _after(rows),
        "updates": statistics.fmean(_updates(row) for row in counted) if counted else None,
        "epoch_starts": _epoch_starts(rows),
        "first_step_seconds": rows[0]["total"] if rows else None,
    }


def _rates(rows: Sequence[dict[str, float]], block: int) -> list[float]:
    """The rate of each block of steps, or of each step whose time on the device is known."""
    if rows and "device_total" in rows[-1]:
        return [row["images"] / row["device_total"] for row in rows if row.get("device_total")]
    blocks = [rows[start : start + block] for start in range(0, len(rows), block)]
    return [sum(row["images"] for row in some) / sum(row["total"] for row in some) for some in blocks]


def _has_images(rows: Sequence[dict[str, float]]) -> bool:
    return all("images" in row for row in rows)


def _overall_rate(rows: Sequence[dict[str, float]], counted: Sequence[dict[str, float]]) -> float | None:
    """The rate over the time that training takes: the counted steps, and their share of what lies between steps."""
    if not counted:
        return None
    between = statistics.fmean(sum(row.get(name, 0.0) for name in GAPS) for row in rows)
    return sum(row["images"] for row in counted) / sum(row["total"] + between for row in counted)


def _means(rows: Sequence[dict[str, float]], names: Sequence[str], prefix: str = "") -> dict[str, float | None]:
    return {name: statistics.fmean(row.get(prefix + name, 0.0) for row in rows) if rows else None for name in names}


def _cores_used(rows: Sequence[dict[str, float]], columns: Sequence[str]) -> dict[str, float | None]:
    """Cores that this process, or its main thread, used in each phase of the sampled steps.

    One that takes far longer than the others is left out: it is chance, such as Python's first full garbage collection.
    """
    asked = sorted((row for row in rows if columns[0] in row), key=lambda row: row["total"])
    if len(asked) >= FEWEST_SAMPLES and asked[-1]["total"] > FAR * max(_usual(asked, "total"), asked[-2]["total"]):
        asked.pop()
    seconds = {phase: sum(row.get(phase, 0.0) for row in asked) for phase in PHASES}
    computed = {
        phase: sum(row.get(column, 0.0) for row in asked) for phase, column in zip(PHASES, columns, strict=True)
    }
    return {phase: computed[phase] / seconds[phase] if seconds[phase] >= SHORTEST else None for phase in PHASES}


def _uneven(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    """How many steps take far longer than typical ones, what that costs per mean step, and mostly in which phase.

    Steps are compared with those of as many updates: with accumulated gradients, or a second optimizer, steps with an
    update are longer by design.
    """
    alike = {count: [row for row in rows if _updates(row) == count] for count in set(map(_updates, rows))}
    usual = {count: {name: _usual(some, name) for name in ("total", *PHASES)} for count, some in alike.items()}
    long = [row for row in rows if row["total"] > FAR * usual[_updates(row)]["total"]]
    extra = {name: sum(row.get(name, 0.0) - usual[_updates(row)][name] for row in long) for name in ("total", *PHASES)}
    return {
        "steps": len(long),
        "usual_seconds": _usual(rows, "total"),
        "long_seconds": statistics.median(row["total"] for row in long) if long else None,
        "extra_seconds": extra["total"] / len(rows),
        "garbage_seconds": sum(row.get(COLLECTING, 0.0) for row in long) / len(rows),
        "phase": max(PHASES, key=lambda phase: extra[phase]) if long else None,
        "files": None,  # of the batches that were waited for, where somebody looks at them
    }


def _epoch_starts(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    """How long the first step of an epoch waits for data, and what the start of an epoch costs beyond its other steps.

    The run's first epoch, and those with a profiled step, are left out. ``extra`` are seconds of each phase, without
    waits for other ranks, summed over the first steps of a typical epoch: ``OPENING`` of them, or half in a shorter
    one; None with fewer than ``FEWEST_EPOCHS``. Steps are compared with those of as many images and updates.
    ``between`` lies before them, and is neither a validation nor anybody's hook.
    """

    def own(row: dict[str, float], phase: str) -> float:
        return row.get(phase, 0.0) - row.get(f"wait_{phase}", 0.0)

    found = [list(steps) for _, steps in groupby(rows, key=lambda row: row["epoch"])]
    epochs = [steps for steps in found[1:] if not any(row["profiled"] for row in steps)]
    firsts = [(steps[:place], steps[place:]) for steps in epochs if (place := min(OPENING, len(steps) // 2))]
    others = defaultdict[tuple[float | None, float], list[dict[str, float]]](list)
    for row in chain.from_iterable(rest for _, rest in firsts):
        others[_kind(row)].append(row)
    extra: dict[str, float] = {}
    for phase in PHASES if len(firsts) >= FEWEST_EPOCHS else ():
        usual = {kind: statistics.median(own(row, phase) for row in some) for kind, some in others.items()}
        more = [sum(own(row, phase) - usual.get(_kind(row), own(row, phase)) for row in first) for first, _ in firsts]
        extra[phase] = statistics.median(more)
    gaps = [
        before.get("between", 0.0) - sum(value for name, value in before.items() if name.startswith(AFTER))
        for before, after in pairwise(rows)
        if after["epoch"] != before["epoch"]
    ]
    return {
        "count": len(epochs),
        "data_wait": statistics.fmean(steps[0]["data_wait"] for steps in epochs) if epochs else None,
        "extra": extra or None,
        "between": max(0.0, statistics.fmean(gaps)) if gaps else None,
    }


def _half(values: Sequence[float]) -> int:
    """How many of the largest make up half of the sum."""
    sums, half = accumulate(sorted(values, reverse=True), initial=0.0), sum(values) / 2
    return sum(1 for before in sums if before < half)


def _kind(row: dict[str, float]) -> tuple[float | None, float]:
    """What steps must share to take equally long: images and updates."""
    return row.get("images"), _updates(row)


def _updates(row: dict[str, float]) -> float:
    return row.get("updates", 1.0)


def _quarters(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    """A typical step of each quarter of the run, and the phase that grew most from the first to the last.

    ``rising``: of all pairs of that phase's steps, or blocks of them, the share in which the later one takes longer.
    """
    size = len(rows) // 4
    parts = [rows[start : start + size] for start in range(0, 4 * size, size)]
    grown = {phase: _usual(parts[-1], phase) - _usual(parts[0], phase) for phase in PHASES}
    phase = max(grown, key=lambda phase: grown[phase])
    count = min(len(rows), BLOCKS)
    ends = [len(rows) * place // count for place in range(count + 1)]
    pairs = list(combinations([_usual(rows[start:end], phase) for start, end in pairwise(ends)], 2))
    return {
        "seconds": [_usual(part, "total") for part in parts],
        "phase": phase,
        "phase_seconds": [_usual(part, phase) for part in parts],
        "rising": sum(after > before for before, after in pairs) / len(pairs),
    }


def _usual(rows: Sequence[dict[str, float]], name: str) -> float:
    return statistics.median(row.get(name, 0.0) for row in rows)


def _growth(rows: Sequence[dict[str, float]], name: str) -> dict[str, Any] | None:
    """How much the memory of a process grew from the first quarter of its figures to the last, and whether steadily.

    None for fewer than ``FEWEST_FIGURES``.
    """
    moments = accumulate(row["total"] + sum(row.get(gap, 0.0) for gap in GAPS) for row in rows)
    figures = [(moment, row[name]) for moment, row in zip(moments, rows, strict=True) if name in row]
    if (size := len(figures) // 4) < FEWEST_FIGURES // 4:
        return None
    parts = [figures[start : start + size] for start in range(len(figures) - 4 * size, len(figures), size)]
    times, held = ([statistics.fmean(figure[place] for figure in part) for part in parts] for place in (0, 1))
    grown = [after - before for before, after in pairwise(held)]
    return {
        "first_bytes": figures[0][1],
        "last_bytes": figures[-1][1],
        "seconds": figures[-1][0] - figures[0][0],
        "bytes_per_second": (held[-1] - held[0]) / (times[-1] - times[0]),
        "steady": min(grown) > max(grown) * STEADY,
    }


def _callbacks(rows: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """Seconds per step of each callback, logger and module with hooks in a step, the longest first."""
    found = []
    for column in rows[0] if rows else ():
        if column.startswith(OWNED):
            values = [row.get(column, 0.0) for row in rows]
            name = column.removeprefix(OWNED)
            longest = max(values)
            calls = sum(1 for value in values if value > CALLED * longest)
            found.append({"name": name, "mean": statistics.fmean(values), "longest": longest, "calls": calls})
    return sorted(found, key=lambda one: -one["mean"])


def _after(rows: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """Seconds per step of each callback's, and the module's, hooks between steps, the longest first."""
    columns = [column for column in rows[0] if column.startswith(AFTER)] if rows else []
    means = {column: statistics.fmean(row.get(column, 0.0) for row in rows) for column in columns}
    found = [{"name": column.removeprefix(AFTER), "mean": mean} for column, mean in means.items() if mean]
    return sorted(found, key=lambda one: -float(str(one["mean"])))


def read_rows(
    path: Path, *, last: int | None = None, wanted: Callable[[str], bool] | None = None
) -> list[dict[str, float]]:
    """The complete rows, or only the ``last`` N, without empty cells; a killed run's last row may be cut off.

    Only columns that are ``wanted`` are read, if that is given.

    Raises:
        ValueError: the file is damaged.
    """
    if not path.is_file():
        return []
    with path.open("rb") as file:
        head = file.readline()
        if last is not None and (start := path.stat().st_size - last * LONGEST_ROW) > len(head):
            file.seek(start)
            file.readline()  # what is left of a row
        lines = deque((line.decode() for line in file if line.endswith(b"\n")), maxlen=last)
    names, *rows = csv.reader([head.decode(), *lines])
    if any(len(row) > len(names) for row in rows):
        raise ValueError(f"{path} has rows that are longer than its header")
    kept = [wanted is None or wanted(name) for name in names]
    cells = (compress(zip(names, row, strict=False), kept) for row in rows if row)
    return [{name: float(value) for name, value in row if value} for row in cells]
