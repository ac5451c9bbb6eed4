"""The runs below the directories that a user names, those of a sweep that left no record among them."""

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from strobe.errors import ConfigError, DataError
from strobe.records.places import runs_in
from strobe.records.run import Record, load_record
from strobe.records.sweep import NAME as SWEEP
from strobe.records.sweep import STATUSES, Sweep, read_sweep
from strobe.records.sweep import Run as SweepRun

_SAME = re.compile(r"(seed|ckpt_path)$|hydra[./]|sweep\.")  # keys in which the runs of one cell may differ


@dataclass(frozen=True)
class Trained:
    """One training."""

    folder: Path
    origin: Path  # the sweep's directory, else what the user named
    overrides: dict[str, str]  # of its cell: key and value, as they were given
    status: str  # completed | failed | interrupted
    error: str | None = None
    seconds: float | None = None
    order: tuple[int, ...] = ()  # the cell's number in its sweep, and the repeat
    record: Record = field(default_factory=lambda: Record({}))
    damaged: bool = False  # its record cannot be read, or was never written: whether it failed, nobody knows

    @property
    def rate(self) -> float | None:
        """Images/s over training time, of a run that completed and measured any."""
        return rate_of(self.record) if self.status == "completed" else None


def rate_of(record: Record) -> float | None:
    """Images/s over training time; the median of the steps where that is not told; None if nothing was measured."""
    found = record.number("overall_images_per_second") or record.number("images_per_second", "median")
    return found if found and found > 0 else None


def tidy(path: Path) -> Path:
    """The path without ``..`` in it."""
    return path.resolve() if ".." in path.parts else path


def is_sweep(path: Path) -> bool:
    """Whether a directory is that of one sweep."""
    return is_folder(path) and any(name in {SWEEP, "multirun.yaml"} for name in _names(path))


def is_folder(path: Path) -> bool:
    """Whether there is such a directory; also asked of texts that cannot be the name of any."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _names(path: Path) -> list[str]:
    try:
        return [file.name for file in path.iterdir()]
    except OSError:
        return []


def find_runs(given: Sequence[Path]) -> list[Trained]:
    """All runs at these paths, once each, a sweep's in the order of its cells and repeats.

    Raises:
        DataError: a path is no directory, or may not be read, or there is no run below it.
    """
    found: dict[Path, Trained] = {}
    for path in given:
        if not is_folder(path):
            raise DataError(f"{path} is not a directory; give the directory of a run or of a sweep below outputs/")
        try:
            runs = _below(path)
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror or error}); see to its permissions") from error
        if not runs:
            raise DataError(f"{path} holds no run; give the directory of a run or of a sweep below outputs/")
        for run in runs:
            found.setdefault(run.folder.resolve(), run)
    return list(found.values())


def damaged_sweeps(given: Sequence[Path]) -> list[str]:
    """What is wrong with sweeps' records at these paths; runs that left no record of their own are not known there."""
    read = {folder.resolve(): sweep for path in given for folder, sweep in _sweeps(path)}
    return [
        f"{folder / SWEEP} cannot be read, so cells that left no summary.json are missing here"
        for folder, sweep in read.items()
        if sweep is None
    ]


def as_pairs(overrides: Iterable[str]) -> dict[str, str]:
    """What makes a run's cell: keys with the values that were given last; seed, output and resuming do not count."""
    pairs = (_pair(text) for text in overrides)
    return {key: value for key, value in pairs if not _SAME.match(key)}


@functools.lru_cache(maxsize=4096)
def _pair(text: str) -> tuple[str, str]:
    """A key and its value in Hydra's own spelling, which a sweep's cells get: ``1e-3`` is ``0.001`` there."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, _, value = text.lstrip("+").partition("=")
    try:
        override = OverridesParser.create().parse_override(text)
        if not override.is_sweep_override():
            given = override.value()
            value = given if isinstance(given, str) else override.get_value_element_as_str()
    except HydraException:
        pass  # as it was typed
    return key, "" if key.startswith("~") and value == "null" else value


def _below(path: Path) -> list[Trained]:
    """The runs of a directory: those that its sweeps' records name, and those that lie there besides."""
    found: dict[Path, Trained] = {}
    for folder, sweep in _sweeps(path):
        for cell in sweep.cells if sweep else ():
            for run in cell.runs:
                directory = folder / run.directory
                if directory.resolve().is_relative_to(path.resolve()):
                    found[directory] = _of_sweep(directory, folder, cell.overrides, (cell.number, run.repeat), run)
    runs = sorted(found.values(), key=lambda run: (str(run.origin), run.order))
    known = {run.folder.resolve() for run in runs}
    return runs + [_alone(folder, path) for folder in runs_in(path) if folder.resolve() not in known]


def _sweeps(path: Path) -> Iterator[tuple[Path, Sweep | None]]:
    """The sweeps below a directory, and the one that it is a run of; None where the record is damaged."""
    for folder in sorted({file.parent for file in [*path.rglob(SWEEP), *path.parent.glob(SWEEP)]}):
        try:
            yield folder, read_sweep(folder)
        except ConfigError:  # the runs' own records tell what they can
            yield folder, None


def _of_sweep(folder: Path, sweep: Path, overrides: Sequence[str], order: tuple[int, ...], entry: SweepRun) -> Trained:
    """A run as its sweep's record tells of it; its own record adds what was measured."""
    record, fault = _record(folder)
    status, error = entry.status, entry.error
    damaged = status == "completed" and fault is not None
    if damaged:
        status, error = "failed", fault
    if status == "interrupted" and record.text("status") == "completed":  # the sweep was killed, and the run went on
        status, error = "completed", None
    return Trained(folder, sweep, as_pairs(overrides), status, error, entry.seconds, order, record, damaged)


def _alone(folder: Path, origin: Path) -> Trained:
    """A run by its own record."""
    record, fault = _record(folder)
    overrides = [text for text in record.items("overrides") if isinstance(text, str)] or _overrides(folder)
    status = record.text("status")
    if fault is None and status not in STATUSES:
        fault = f"{folder / 'summary.json'} has status {status!r}, which is unknown; run the training again"
    if fault is not None or status is None:
        return Trained(folder, origin, as_pairs(overrides), "failed", fault, record=record, damaged=True)
    error = record.text("error", "message") or record.text("error", "type")
    return Trained(folder, origin, as_pairs(overrides), status, error, record=record)


def _record(folder: Path) -> tuple[Record, str | None]:
    """A run's record, and what is wrong with it."""
    if folder.is_dir() and not (folder / "summary.json").is_file():
        return Record({}), f"{folder} holds no summary.json: the run goes on, or was killed"
    try:
        return load_record(folder), None
    except DataError as error:
        return Record({}), str(error)


def _overrides(folder: Path) -> list[str]:
    """What Hydra wrote at a run's start."""
    try:
        given: Any = OmegaConf.to_container(OmegaConf.load(folder / ".hydra" / "overrides.yaml"))
    except (OSError, ValueError, YAMLError, OmegaConfBaseException):
        return []
    return [text for text in given if isinstance(text, str)] if isinstance(given, list) else []
