"""What cells are compared with: one of them, or cells of the same overrides in another directory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.compare.cells import Key, differing, grouped, name_of, rates_of
from strobe.compare.runs import Trained, find_runs, is_folder, is_sweep, tidy
from strobe.errors import ConfigError, DataError
from strobe.overrides import Parse, as_typed


@dataclass(frozen=True)
class Baseline:
    """Either one cell, or ``namesakes`` by cell; neither where nothing was measured."""

    runs: Sequence[Trained] = ()  # of the one cell
    key: Key | None = None  # of that cell, if it is among those compared; None: it lies elsewhere, and is a row besides
    where: Path | None = None  # the directory that was named for it, if it is no cell of those compared
    namesakes: Mapping[Key, Sequence[Trained]] = field(default_factory=dict)

    def of(self, key: Key) -> Sequence[Trained]:
        """The runs that a cell is compared with; none where it has no namesake."""
        return self.namesakes.get(key, ()) if self.namesakes else self.runs

    def everything(self) -> Iterator[Trained]:
        """All runs of it that are not among those compared."""
        yield from (run for runs in self.namesakes.values() for run in runs)
        if self.key is None:
            yield from self.runs


def first_measured(cells: Mapping[Key, Sequence[Trained]]) -> Baseline:
    """The first cell in which a run completed."""
    found = next(((key, runs) for key, runs in cells.items() if rates_of(runs)), None)
    return Baseline() if found is None else Baseline(found[1], found[0])


def named(
    text: str,
    given: Sequence[Path],
    cells: Mapping[Key, Sequence[Trained]],
    keys: Sequence[str],
    parse: Parse = as_typed,
) -> tuple[Baseline, dict[Key, list[Trained]]]:
    """The baseline that was asked for, and the cells that are left to be compared with it.

    Args:
        text: a run's or sweep's directory, or a cell's name, or as much of it as fits one cell only.
        given: the directories whose runs are compared.
        cells: those runs.
        keys: the overrides in which the cells differ, of which names are made.
        parse: as of ``find_runs``.

    Raises:
        ConfigError: it names no cell, or several.
        DataError: it has measured nothing, or nothing is left to be compared, or it has no cell of those compared.
    """
    path = tidy(Path(text))
    left = {key: list(runs) for key, runs in cells.items()}
    if not is_folder(path):
        key = _cell(text, cells, keys)
        return _measured(Baseline(cells[key], key), text), left
    theirs = grouped(find_runs([path], parse))
    ours = {run.folder.resolve() for runs in cells.values() for run in runs}
    folders = {run.folder.resolve() for runs in theirs.values() for run in runs}
    only = next(iter(theirs)) if len(theirs) == 1 and not is_sweep(path) else None
    if only is not None and folders <= ours:
        named_itself = path.resolve() in {one.resolve() for one in given}
        if not named_itself or len(cells[only]) == len(folders):
            return _measured(Baseline(cells[only], only), text), left
    for key, runs in cells.items():
        left[key] = [run for run in runs if run.folder.resolve() not in folders]
    left = {key: runs for key, runs in left.items() if runs}
    if not left:
        raise DataError(
            f"--baseline {text} holds all runs that would be compared with it; name one run or cell of it, or give the "
            "runs of another directory besides"
        )
    if only is not None:
        return _measured(Baseline(theirs[only], where=path), text), left
    if not left.keys() & theirs.keys():
        raise DataError(_strangers(text, left, theirs))
    return _measured(Baseline(where=path, namesakes=theirs), text), left


def _measured(baseline: Baseline, text: str) -> Baseline:
    if not any(rates_of(runs) for runs in (baseline.runs, *baseline.namesakes.values())):
        raise DataError(f"--baseline {text} has no completed run that measured images/s; name another")
    return baseline


def _strangers(text: str, ours: Mapping[Key, Any], theirs: Mapping[Key, Any]) -> str:
    """Why no cell has a namesake: the keys in which all differ from all, else those in which any do."""
    names = {name for key in (*ours, *theirs) for name, _ in key}
    values = [{name: {dict(key).get(name) for key in side} for name in names} for side in (ours, theirs)]
    apart = [name for name in values[0] if not values[0][name] & values[1][name]]
    keys = apart or differing([dict(key) for key in (*ours, *theirs)])
    return (
        f"--baseline {text} has no cell of the same overrides as any of those compared: they differ in "
        f"{', '.join(sorted(keys))}; give a sweep of the same overrides, or one run's directory for all"
    )


def _cell(text: str, cells: Mapping[Key, Sequence[Trained]], keys: Sequence[str]) -> Key:
    """The cell of this name; else the only one that has these overrides; else the only one in whose name it is."""
    names = {key: name_of(dict(key), keys) for key in cells}
    parts = set(text.split())
    for found in (
        [key for key, name in names.items() if name == text],
        [key for key in cells if parts <= {f"{name}={value}" for name, value in key}],
        [key for key, name in names.items() if text in name],
    ):
        fits = [key for key in found if rates_of(cells[key])] or found
        if len(fits) == 1:
            return fits[0]
        if fits:
            told = ", ".join([*(names[key] for key in fits[:3]), *["..."] * (len(fits) > 3)])
            raise ConfigError(f"--baseline {text!r} fits {len(fits)} cells ({told}); name one")
    told = ", ".join(sorted(names.values())[:6])
    raise ConfigError(f"--baseline {text!r} is neither a directory nor a cell; the cells are: {told}")
