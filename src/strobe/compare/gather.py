"""The record of a comparison, ``comparison.json``: runs and sweeps side by side, the fastest first."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.compare.cells import (
    CellRecord,
    Key,
    describe,
    differing,
    environment_differences,
    grouped,
    name_of,
    rates_of,
)
from strobe.compare.runs import Trained, damaged_sweeps, find_runs, is_folder, is_sweep, tidy
from strobe.compare.speeds import DIFFERENT_DAYS, Speeds, knees, of_too_few_days, ratio_of
from strobe.diagnose.cores import TAKEN
from strobe.errors import ConfigError, DataError
from strobe.measure.days import NOT_KNOWN
from strobe.measure.gate import Case, rule
from strobe.measure.statistics import together
from strobe.overrides import Parse, as_typed
from strobe.present.format import here, percent

SCHEMA = 1
MOST_NAMED = 5
BLANK = "completed, but no step was measured: all of them were warm-up or profiled"


@dataclass(frozen=True)
class Request:
    """What to compare, and where to write the comparison; its links are relative to that folder."""

    paths: Sequence[Path]
    folder: Path
    command: str
    baseline: str | None = None
    limit: float | None = None  # share of speed that may be lost, see ``--fail-if-slower``
    parse: Parse = as_typed  # gives an override's key and value, so that two spellings of one value are one cell


@dataclass(frozen=True)
class Baseline:
    """Either one cell, or ``namesakes`` by cell; neither if nothing was measured."""

    runs: Sequence[Trained] = ()  # of the one cell
    key: Key | None = None  # of that cell, if it is among those compared; None: it lies elsewhere, and is a row besides
    where: Path | None = None  # the directory that was named for it, if it is no cell of those compared
    namesakes: Mapping[Key, Sequence[Trained]] = field(default_factory=dict)

    def everything(self) -> Iterator[Trained]:
        """All of its runs that are not among those compared."""
        yield from (run for runs in self.namesakes.values() for run in runs)
        if self.key is None:
            yield from self.runs


def gather(request: Request) -> dict[str, Any]:
    """The whole record except ``operators``.

    Raises:
        DataError: there are no runs, or the baseline has measured nothing.
        ConfigError: the baseline names no cell, or several.
    """
    runs_of, elsewhere = grouped(find_runs(request.paths, request.parse)), dict[Key, list[Trained]]()
    keys = differing([runs[0].overrides for runs in runs_of.values()])
    if request.baseline is None:
        baseline = Baseline(*next(((runs, key) for key, runs in runs_of.items() if rates_of(runs)), ()))
    else:
        baseline, runs_of = _named(request.baseline, request, runs_of, keys)
        if not any(rates_of(runs) for runs in (baseline.runs, *baseline.namesakes.values())):
            raise DataError(f"--baseline {request.baseline} has no completed run with a measured step; name another")
        elsewhere = grouped(list(baseline.everything()))
        keys = differing([runs[0].overrides for runs in (*runs_of.values(), *elsewhere.values())])
    sides = dict[Key | None, Sequence[Trained]](runs_of.items())
    if baseline.runs and baseline.key is None:  # it lies elsewhere, and is a row besides
        sides[None] = baseline.runs
    speeds, name = Speeds(sides), ""
    keyed, cases = list[tuple[Key | None, CellRecord]](), list[Case]()
    for key, runs in sides.items():
        cell = describe(runs, keys, request.folder)
        if len(runs_of) == 1 and not elsewhere:
            cell["name"] = name_of(runs[0].overrides, list(runs[0].overrides))
        if key is None and cell["name"] in {other["name"] for _, other in keyed}:
            cell["name"] += f" ({baseline.where})"
        if key is not None and key != baseline.key:
            cases.append(_judged(cell, runs, baseline, key, speeds))
        else:
            cell["verdict"], name = "baseline", str(cell["name"])
        keyed.append((key, cell))
    _conclude([cell for key, cell in keyed if key != baseline.key], cases)
    named = [(str(cell["name"]), sides[key]) for key, cell in keyed]
    named += [(f"{name_of(dict(key), keys)} in {baseline.where}", runs) for key, runs in baseline.namesakes.items()]
    ranked = [pair for pair in keyed if pair[1]["images_per_second"]]
    ranked.sort(key=lambda pair: -pair[1]["images_per_second"]["median"])
    _mark_fastest(ranked, speeds)
    cells = [cell for _, cell in ranked] + [cell for _, cell in keyed if not cell["images_per_second"]]
    lost = [name_of(dict(key), keys) for key in baseline.namesakes if key not in runs_of]
    damaged = damaged_sweeps([*request.paths, *([baseline.where] if baseline.where else [])])
    runs = [*(run for runs in runs_of.values() for run in runs), *baseline.everything()]
    gate = None
    if request.limit is not None:  # a cell that only the baseline has, or a damaged record, keeps it closed
        cases += [Case(name, doubt="only the baseline has measured it") for name in lost]
        gate = rule(cases, request.limit, "--fail-if-slower ", "sweep.repeats", damaged).as_record()
    title = here(request.paths[0].absolute())
    return {
        "schema": SCHEMA,
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": request.command,
        "title": title if len(request.paths) == 1 else f"{title} and {len(request.paths) - 1} more",
        "baseline": name or None,
        # The machine of the first run that names one; where the others differ stands in ``unlike``.
        "environment": next((environment for run in runs if (environment := run.record.mapping("environment"))), {}),
        "against": None if baseline.where is None else str(baseline.where),
        "keys": keys,
        "cells": cells,
        "unlike": environment_differences(runs, keys),
        "notes": [*_busy(named), *_notes(cells, baseline, lost), *_pooled(runs_of.values(), request.paths), *damaged],
        "knees": knees(ranked, speeds),
        "operators": None,
        "regression": gate,
    }


def _judged(cell: CellRecord, runs: Sequence[Trained], baseline: Baseline, key: Key, speeds: Speeds) -> Case:
    """A cell as the gate sees it, with its ratio to the baseline."""
    theirs = baseline.namesakes.get(key, ()) if baseline.namesakes else baseline.runs
    ours, reference = rates_of(runs), rates_of(theirs)
    ratio = None
    if ours and reference:
        cell["paired"] = not baseline.namesakes and speeds.paired(key, baseline.key)
        ratio = ratio_of(runs, theirs) if baseline.namesakes else speeds.ratio(key, baseline.key)
    elif baseline.namesakes and ours:
        cell["verdict"] = "no counterpart"
    broken = [run for run in runs if run.status == "failed"]
    failed = bool(reference) and not ours and any(not run.damaged for run in broken)
    doubt = None
    if not reference:
        doubt = "the baseline has not measured it"
    elif not ours and not failed:
        doubt = broken[0].error if broken else "interrupted" if runs[0].status == "interrupted" else "not measured"
    elif ratio and not cell["paired"] and of_too_few_days(runs, theirs):
        doubt = DIFFERENT_DAYS
    elif broken and not any(run.status == "failed" for run in theirs):
        doubt = f"{len(broken)} of {len(runs)} runs failed ({broken[0].error})"
    return Case(cell["name"], ratio, failed, doubt)


def _conclude(cells: Sequence[CellRecord], cases: Sequence[Case]) -> None:
    """Set each cell's ``speedup`` and ``verdict``, which hold for all cells together."""
    judged = [(cell, case, case.ratio) for cell, case in zip(cells, cases, strict=True) if case.ratio]
    for (cell, case, _), ratio in zip(judged, together([ratio for *_, ratio in judged]), strict=True):
        cell["speedup"] = ratio.as_record()
        cell["verdict"] = NOT_KNOWN if case.doubt == DIFFERENT_DAYS else ratio.verdict
        cell["speedup_level"] = None if ratio.low is None else ratio.level


def _mark_fastest(ranked: Sequence[tuple[Key | None, CellRecord]], speeds: Speeds) -> None:
    """Set ``best``: the highest rate of completed cells; and ``fastest``: the cells that may be the fastest."""
    completed = [(key, cell) for key, cell in ranked if cell["status"] == "completed"]
    for best, cell in (completed or ranked)[:1]:
        cell["best"] = True
        ties = speeds.not_slower(best, [key for key, _ in completed[1:]])
        for key, other in completed[1:]:
            other["fastest"] = ties[key]
        cell["fastest"] = True if {True, False} & set(ties.values()) else None


def _busy(cells: Sequence[tuple[str, Sequence[Trained]]]) -> list[str]:
    """A note that other programs used the machine while some runs trained, as each run's report says."""
    used = {name: [run.record.number("machine", "others") or 0.0 for run in runs] for name, runs in cells}
    busy = {name: sum(share >= TAKEN for share in shares) for name, shares in used.items()}
    if not any(busy.values()):
        return []
    which = _listed(
        [
            name if count == len(used[name]) else f"{name} ({count} of {len(used[name])} runs)"
            for name, count in busy.items()
            if count
        ]
    )
    most = percent(max(share for shares in used.values() for share in shares))
    return [f"Other programs used up to {most} of the cores during {which}: their rates may be too low, and uneven"]


def _notes(cells: Sequence[CellRecord], baseline: Baseline, lost: Sequence[str]) -> list[str]:
    """What a reader of the table should also know."""
    notes = []
    if few := sum(cell["verdict"] == "too few runs" for cell in cells):
        notes.append(
            f"{few} cell{'s have' if few > 1 else ' has'} too few runs for a verdict; train more often (a sweep with "
            "sweep.repeats=3)"
        )
    if apart := [cell["name"] for cell in cells if cell["verdict"] == NOT_KNOWN]:
        notes.append(f"{_listed(apart)}: {NOT_KNOWN}: {DIFFERENT_DAYS}")
    if blank := [cell["name"] for cell in cells if cell["status"] == "completed" and not cell["images_per_second"]]:
        notes.append(f"{_listed(blank)}: {BLANK}; train longer, or with profiler=none")
    if cells and cells[0]["images_per_second"] and not cells[0]["best"]:
        notes.append(f"{cells[0]['name']} has the highest rate, but not all of its runs completed")
    if baseline.namesakes:
        new = [cell["name"] for cell in cells if cell["verdict"] == "no counterpart"]
        for names, where in ((new, f"not measured in {baseline.where}"), (lost, f"only in {baseline.where}")):
            if names:
                notes.append(f"{_listed(names)}: {where}")
    return notes


def _pooled(cells: Iterable[Sequence[Trained]], paths: Sequence[Path]) -> list[str]:
    """A note that sweeps were merged; none for runs that were named one by one."""
    alone = {path.resolve() for path in paths}
    origins = [{run.origin.resolve() for run in runs if run.folder.resolve() not in alone} for runs in cells]
    most = max(map(len, origins), default=0)
    if most < 2:
        return []
    return [
        f"runs of {most} directories are taken as repeats of the same cells; to compare them with each other: "
        "strobe compare NEW --baseline OLD"
    ]


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _named(
    text: str, request: Request, cells: dict[Key, list[Trained]], keys: Sequence[str]
) -> tuple[Baseline, dict[Key, list[Trained]]]:
    """The baseline that was asked for, and the other cells, which are compared with it.

    ``text``: a run's or sweep's directory, or a cell's name, or as much of it as fits one cell only.
    """
    path = tidy(Path(text))
    if not is_folder(path):
        key = _cell(text, cells, keys)
        return Baseline(cells[key], key), cells
    theirs = grouped(find_runs([path], request.parse))
    ours = {run.folder.resolve() for runs in cells.values() for run in runs}
    folders = {run.folder.resolve() for runs in theirs.values() for run in runs}
    only = next(iter(theirs)) if len(theirs) == 1 and not is_sweep(path) else None
    if only is not None and folders <= ours:
        named_itself = path.resolve() in {one.resolve() for one in request.paths}
        if not named_itself or len(cells[only]) == len(folders):
            return Baseline(cells[only], only), cells
    left = grouped([run for runs in cells.values() for run in runs if run.folder.resolve() not in folders])
    if not left:
        raise ConfigError(
            f"--baseline {text} holds all runs that would be compared with it; name one run or cell of it, or give the "
            "runs of another directory besides"
        )
    if only is not None:
        return Baseline(theirs[only], where=path), left
    if not left.keys() & theirs.keys():
        raise ConfigError(_strangers(text, left, theirs))
    return Baseline(where=path, namesakes=theirs), left


def _strangers(text: str, ours: Mapping[Key, Any], theirs: Mapping[Key, Any]) -> str:
    """Why no cell has a namesake: the keys in which all cells differ, or else those in which any do."""
    names = {name for key in (*ours, *theirs) for name, _ in key}
    values = [{name: {dict(key).get(name) for key in side} for name in names} for side in (ours, theirs)]
    apart = [name for name in values[0] if not values[0][name] & values[1][name]]
    keys = apart or differing([dict(key) for key in (*ours, *theirs)])
    return (
        f"--baseline {text} has no cell of the same overrides as any of those compared: they differ in "
        f"{', '.join(sorted(keys))}; give a sweep of the same overrides, or one run's directory for all"
    )


def _cell(text: str, cells: Mapping[Key, Sequence[Trained]], keys: Sequence[str]) -> Key:
    """The cell with this name; else the only one with these overrides; else the only one whose name contains it."""
    names = {key: name_of(dict(key), keys) for key in cells}
    parts = set(text.split())
    for candidates in (
        [key for key, name in names.items() if name == text],
        [key for key in cells if parts <= {f"{name}={value}" for name, value in key}],
        [key for key, name in names.items() if text in name],
    ):
        fits = [key for key in candidates if rates_of(cells[key])] or candidates
        if len(fits) == 1:
            return fits[0]
        if fits:
            listed = ", ".join([*(names[key] for key in fits[:3]), *["..."] * (len(fits) > 3)])
            raise ConfigError(f"--baseline {text!r} fits {len(fits)} cells ({listed}); name one")
    listed = ", ".join(sorted(names.values())[:6])
    raise ConfigError(f"--baseline {text!r} is neither a directory nor a cell; the cells are: {listed}")
