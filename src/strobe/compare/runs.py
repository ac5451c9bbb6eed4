"""The runs below the directories that a user names, including runs of a sweep that left no record."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from strobe.errors import ConfigError, DataError
from strobe.overrides import Parse, as_typed, cell_of
from strobe.records.places import runs_in
from strobe.records.run import Record, load_record, rate_of, read_yaml
from strobe.records.sweep import NAME as SWEEP
from strobe.records.sweep import STATUSES, Sweep, read_sweep
from strobe.records.sweep import Run as SweepRun


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
        """Images/s over training time; None unless the run completed and measured them."""
        return rate_of(self.record) if self.status == "completed" else None

    @property
    def ended(self) -> datetime:
        """When its record was written; of a record without a date when its file was."""
        date = self.record.text("date")
        file = self.folder / "summary.json"
        moment = datetime.fromisoformat(date) if date else datetime.fromtimestamp(file.stat().st_mtime)
        return moment.replace(tzinfo=None)


def tidy(path: Path) -> Path:
    """The path without ``..`` in it."""
    return path.resolve() if ".." in path.parts else path


def is_sweep(path: Path) -> bool:
    """Whether a directory is that of one sweep."""
    return is_folder(path) and any(file for name in (SWEEP, "multirun.yaml") for file in path.glob(name))


def is_folder(path: Path) -> bool:
    """Whether there is such a directory; any text may be asked for."""
    try:
        return path.is_dir()
    except OSError:
        return False


def find_runs(paths: Sequence[Path], parse: Parse = as_typed) -> list[Trained]:
    """All runs at these paths, once each, those of a sweep in the order of its cells and repeats.

    Runs belong to one cell if ``parse`` gives the same keys and values for their overrides.

    Raises:
        ConfigError: a path is no directory, or there is no run below it.
        DataError: it may not be read.
    """
    runs_by_folder: dict[Path, Trained] = {}
    for path in paths:
        if not is_folder(path):
            raise ConfigError(f"{path} is not a directory; give the directory of a run or of a sweep")
        try:
            runs = _below(path, parse)
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror or error}); check its permissions") from error
        if not runs:
            raise ConfigError(f"{path} holds no run; give the directory of a run or of a sweep")
        for run in runs:
            runs_by_folder.setdefault(run.folder.resolve(), run)
    return list(runs_by_folder.values())


def damaged_sweeps(paths: Sequence[Path]) -> list[str]:
    """What is wrong with the sweeps' records at these paths; their runs without a record of their own are unknown."""
    read = {folder.resolve(): sweep for path in paths for folder, sweep in _sweeps(path)}
    return [
        f"{folder / SWEEP} cannot be read, so cells that left no summary.json are missing here"
        for folder, sweep in read.items()
        if sweep is None
    ]


def _below(path: Path, parse: Parse) -> list[Trained]:
    """The runs of a directory: those that its sweeps' records name, and those that lie there besides."""
    swept: dict[Path, Trained] = {}
    for folder, sweep in _sweeps(path):
        for cell in sweep.cells if sweep else ():
            for run in cell.runs:
                directory = folder / run.directory
                if directory.resolve().is_relative_to(path.resolve()):
                    cell_overrides = cell_of(cell.overrides, parse)
                    swept[directory] = _of_sweep(directory, folder, cell_overrides, (cell.number, run.repeat), run)
    runs = sorted(swept.values(), key=lambda run: (str(run.origin), run.order))
    known = {run.folder.resolve() for run in runs}
    return runs + [_alone(folder, path, parse) for folder in runs_in(path) if folder.resolve() not in known]


def _sweeps(path: Path) -> Iterator[tuple[Path, Sweep | None]]:
    """The sweeps below a directory, and the one that it belongs to; None for a damaged record."""
    for folder in sorted({file.parent for file in [*path.rglob(SWEEP), *path.parent.glob(SWEEP)]}):
        try:
            yield folder, read_sweep(folder)
        except DataError:  # the runs' own records tell what they can
            yield folder, None


def _of_sweep(folder: Path, sweep: Path, overrides: dict[str, str], order: tuple[int, ...], entry: SweepRun) -> Trained:
    """A run by its sweep's record; its own record adds what was measured."""
    record, fault = _record(folder)
    status, error = entry.status, entry.error
    damaged = status == "completed" and fault is not None
    if damaged:
        status, error = "failed", fault
    if status == "interrupted" and record.text("status") == "completed":  # the sweep was killed, and the run went on
        status, error = "completed", None
    return Trained(folder, sweep, overrides, status, error, entry.seconds, order, record, damaged)


def _alone(folder: Path, origin: Path, parse: Parse) -> Trained:
    """A run by its own record."""
    record, fault = _record(folder)
    texts = record.items("overrides") or read_yaml(folder / ".hydra" / "overrides.yaml")  # written at the run's start
    typed = [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
    overrides, status = cell_of(typed, parse) | _of_script(record), record.text("status")
    if fault is None and status not in STATUSES:
        fault = f"{folder / 'summary.json'} has status {status!r}, which is unknown; run the training again"
    if fault is not None or status is None:
        return Trained(folder, origin, overrides, "failed", fault, record=record, damaged=True)
    error = record.text("error", "message") or record.text("error", "type")
    return Trained(folder, origin, overrides, status, error, record=record)


def _of_script(record: Record) -> dict[str, str]:
    """What identifies the cell of an attached training: its command, and its loader's settings."""
    script = record.text("script")
    counts = {name: record.count(name) for name in ("batch_size", "num_workers")}
    settings = {name: str(count) for name, count in counts.items() if count is not None}
    return {} if script is None else {"script": script.removeprefix("python "), **settings}


def _record(folder: Path) -> tuple[Record, str | None]:
    """A run's record, and what is wrong with it."""
    if folder.is_dir() and not (folder / "summary.json").is_file():
        return Record({}), f"{folder} holds no summary.json: the run goes on, or was killed"
    try:
        return load_record(folder), None
    except DataError as error:
        return Record({}), str(error)
