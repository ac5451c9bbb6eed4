"""A sweep: its runs, their order, and its record, from which an interrupted sweep continues."""

import contextlib
import os
import shlex
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from strobe.app.run.apart import Ended
from strobe.errors import ConfigError
from strobe.measure.timing import rounds
from strobe.overrides import key_of
from strobe.present.format import counted
from strobe.present.terminal import ProgressDisplay, clock, console
from strobe.records.run import Record, rate_of, read_summary
from strobe.records.sweep import INTERRUPTED, NAME, OWN, UNFINISHED, Run, Sweep, SweepCell, read_sweep


class Campaign:
    """Trains the cells of a sweep one after the other, each ``repeats`` times.

    A cell's first run goes into its ``subdirectory`` of the sweep's folder, which exists. None trains more than the
    ``longest`` seconds, if they are known.
    """

    def __init__(
        self,
        folder: Path,
        sweep: Sweep,
        train: Callable[[Sequence[str], Path], Ended],
        subdirectory: Callable[[SweepCell], str],
        longest: float | None = None,
    ) -> None:
        self.folder, self.sweep, self.longest = folder, sweep, longest
        self._train, self._subdirectory = train, subdirectory

    def measure(self, cells: Sequence[SweepCell]) -> None:
        """Train every run that has not completed; the record is saved before and after each, and after Ctrl-C.

        Raises a ConfigError if two runs would get the same directory, or one that exists.
        """
        sweep = self.sweep
        before, began = sweep.seconds, time.monotonic()
        planned = list(rounds(sorted(cells, key=lambda cell: cell.number), range(1, sweep.repeats + 1), sweep.seed))
        due = [(repeat, cell) for repeat, cell in planned if not _is_completed(cell.run(repeat))]
        directories = self._directories(due)
        called, took = names(sweep.cells), list[float]()
        sweep.status = "running"
        try:
            with ProgressDisplay(console(), len(due)) as display:
                display.say(self._announced(len(cells), len(planned), len(due)))
                for number, (repeat, cell) in enumerate(due, 1):
                    name = called[cell.number]
                    display.begins(name, (len(due) - number + 1) * statistics.fmean(took) if took else None)
                    run = self._begun(cell, repeat, directories)
                    try:
                        self._measure(cell, run)
                    finally:
                        sweep.seconds = before + time.monotonic() - began
                        sweep.save(self.folder)
                    if _is_completed(run):
                        took.append(run.seconds)
                    display.completes(number)
                    place = f"{number:>{len(str(len(due)))}}/{len(due)}"
                    display.say(f"[{place}] {self._outcome(run)}  {name}".rstrip())
                    if len(took) == 1 and _is_completed(run) and number < len(due):  # one that fails tells nothing
                        display.say(f"About {clock((len(due) - number) * run.seconds)} left for the other runs")
            sweep.status = "completed"
        except KeyboardInterrupt:
            sweep.status = "interrupted"
            raise
        finally:
            sweep.save(self.folder)

    def rate(self, cell: SweepCell) -> float | None:
        """Images/s, the median of a cell's completed runs; None if nothing was measured."""
        rates = [rate for run in cell.runs if _is_completed(run) and (rate := self._rate(run)) is not None]
        return statistics.median(rates) if rates else None

    def _announced(self, cells: int, runs: int, due: int) -> str:
        """What a sweep is about to do, in one sentence."""
        told = [f"{counted(cells, 'cell')}, {counted(runs, 'run')}, one at a time, into {self.folder}"]
        if due < runs:
            told.append(f"{runs - due} completed before")
        if self.longest is not None and due:
            told.append(f"up to {clock(due * self.longest)} of training (trainer.max_time), besides starts and tests")
        elif due == runs:
            told.append("the first completed run shows how long this takes")
        return "; ".join(told)

    def _directories(self, due: Sequence[tuple[int, SweepCell]]) -> dict[tuple[int, int], str]:
        """The directories of new runs, by cell and repeat; checked to be free before the first run begins."""
        new = [(cell.number, repeat) for repeat, cell in due if cell.run(repeat) is None]
        first = {cell.number: self._subdirectory(cell) for repeat, cell in due if cell.run(repeat) is None}
        directories = {(number, repeat): first[number] + (f".{repeat}" if repeat > 1 else "") for number, repeat in new}
        require_free(self.folder, directories.values(), [run.directory for run in self.sweep.runs()])
        return directories

    def _begun(self, cell: SweepCell, repeat: int, directories: dict[tuple[int, int], str]) -> Run:
        """The next run, with an empty directory, which the record names before it exists.

        If this process is killed, the next one knows that it may use the directory again.
        """
        run = cell.run(repeat)
        if run is None:
            run = Run(repeat, directories[cell.number, repeat], "interrupted", UNFINISHED, 0.0)
            cell.runs.append(run)
        run.status, run.error, run.seconds = "interrupted", UNFINISHED, 0.0
        make_empty(self.folder / run.directory)
        self.sweep.save(self.folder)
        return run

    def _measure(self, cell: SweepCell, run: Run) -> None:
        """Train once, and note in ``run`` how it ended."""
        began = time.monotonic()
        try:
            ended = self._train(cell.overrides, self.folder / run.directory)
        except KeyboardInterrupt:
            run.seconds, run.error = time.monotonic() - began, INTERRUPTED
            if completed(self.folder / run.directory):  # it was about to end anyhow
                run.status, run.error = "completed", None
            raise
        run.status, run.error, run.seconds = ended.status, ended.error, ended.seconds

    def _outcome(self, run: Run) -> str:
        """How a run ended, in a few words."""
        if not _is_completed(run):
            return f"{run.status}: {run.error}"
        rate = self._rate(run)
        return "completed" if rate is None else f"{rate:,.{0 if rate >= 100 else 1}f} images/s"

    def _rate(self, run: Run) -> float | None:
        with contextlib.suppress(OSError, ValueError):
            return rate_of(Record(read_summary(self.folder / run.directory / "summary.json")))
        return None


def opened(folder: Path, fresh: Sweep) -> Sweep:
    """The record of a command, with what an earlier record in the folder has measured.

    Raises a ConfigError for runs without a record, or a sweep of another configuration.
    """
    earlier = read_sweep(folder)
    if earlier is None:
        require_unused(folder)
        return fresh
    flags = [
        [text for text in shlex.split(sweep.command) if text.startswith("--config-")] for sweep in (earlier, fresh)
    ]
    if flags[0] != flags[1]:  # the same overrides of another configuration are other cells
        theirs, ours = (" ".join(each) or "neither --config-name nor --config-dir" for each in flags)
        raise ConfigError(
            f"hydra.sweep.dir={folder} holds a sweep with {theirs}, and this one has {ours}; "
            "give the same, or another folder"
        )
    fresh.began, fresh.seconds, fresh.cells = earlier.began, earlier.seconds, earlier.cells
    for run in fresh.runs():  # one that completed just when the sweep was killed
        if not _is_completed(run) and completed(folder / run.directory):
            run.status, run.error = "completed", None
    return fresh


def of_cells(jobs: Sequence[Sequence[str]]) -> list[list[str]]:
    """The overrides of Hydra's jobs, without ``sweep.*``; raises a ConfigError if two cells would be the same."""
    cells: list[list[str]] = []
    for job in jobs:
        of_sweep = [text for text in job if key_of(text).startswith(OWN)]
        cell = [text for text in job if text not in of_sweep]
        if any(set(cell) == set(other) for other in cells):
            reason = f"{key_of(of_sweep[0])} applies to the whole sweep" if of_sweep else "a value is given twice"
            raise ConfigError(
                f"Two cells of this sweep are the same ({' '.join(cell) or 'no overrides'}): {reason}; give each value "
                "once, and sweep.repeats=N for more runs of each cell"
            )
        cells.append(cell)
    return cells


def names(cells: Sequence[SweepCell]) -> dict[int, str]:
    """By number, the overrides in which a cell differs from the others; all of its overrides if it is the only one."""
    common = frozenset.intersection(*(cell.key for cell in cells)) if len(cells) > 1 else frozenset()
    return {cell.number: " ".join(text for text in cell.overrides if text not in common) for cell in cells}


def _is_completed(run: Run | None) -> bool:
    return run is not None and run.status == "completed"


def require_unused(folder: Path) -> None:
    """Raise a ConfigError for a directory with runs but no ``sweep.json``: they would be overwritten."""
    if _holds_runs(folder):
        raise ConfigError(
            f"hydra.sweep.dir={folder} holds runs but no {NAME}, so their cells are not known; give another folder"
        )


def require_new(folder: Path, launcher: str) -> None:
    """Raise a ConfigError for a directory with runs or a sweep, which this launcher would overwrite."""
    if (folder / NAME).exists() or _holds_runs(folder):
        raise ConfigError(
            f"hydra.sweep.dir={folder} holds runs already, and hydra/launcher={launcher} would overwrite them; "
            "give another folder"
        )


def require_free(folder: Path, names: Iterable[str], taken: Iterable[str]) -> None:
    """Raise a ConfigError unless each name is a new directory of its own below the folder, and not ``taken``."""
    ours = {PurePosixPath(name) for name in taken}
    above = {parent for path in ours for parent in path.parents}
    for name in names:
        path = PurePosixPath(name)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"hydra.sweep.subdir={name} is not below hydra.sweep.dir={folder}; give a relative one")
        if path in ours or path in above or ours & set(path.parents) or os.path.lexists(folder / path):
            raise ConfigError(
                f"{folder / path} is there already or is another run's; give a hydra.sweep.subdir that differs "
                "between cells, such as one with ${hydra.job.num}, or another hydra.sweep.dir"
            )
        ours.add(path)
        above |= set(path.parents)


def _holds_runs(folder: Path) -> bool:
    return any(folder.glob("*/summary.json")) or any(folder.glob("*/.hydra"))


def completed(run: Path) -> bool:
    """Whether a run's record says that it completed."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return read_summary(run / "summary.json").get("status") == "completed"
    return False


def make_empty(run: Path) -> None:
    """Remove what an incomplete run has left."""
    assert not completed(run)
    if run.is_symlink():
        run.unlink()
    elif run.is_dir():
        shutil.rmtree(run)
    else:
        run.unlink(missing_ok=True)
