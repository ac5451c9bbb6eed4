"""A sweep on this machine: cell by cell, each in a process of its own, and on again where it was broken off."""

import contextlib
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, OmegaConf, open_dict

from strobe.app.config.checks import check_bounds
from strobe.app.sweep import folder as directory
from strobe.app.sweep.ending import conclude
from strobe.app.sweep.plan import in_order, names, of_cells
from strobe.errors import ConfigError
from strobe.overrides import key_of, quoted
from strobe.present.terminal import ProgressDisplay, console
from strobe.process.launch import started_by_torchrun
from strobe.process.locks import alone_in
from strobe.process.signals import exit_code, interruptible
from strobe.process.training import train
from strobe.records.run import Record, rate_of, read_summary
from strobe.records.sweep import UNFINISHED, Cell, Run, Sweep, read_sweep

OF_THIS_START = ("hydra.mode", "hydra.sweep.dir", "hydra.run.")
OF_THE_SWEEP = (*OF_THIS_START, "hydra.sweep", "hydra/sweep", "hydra.launcher", "hydra/launcher")


class Campaign:
    """What ``hydra/launcher=processes`` does."""

    def __init__(self, loader: ConfigLoader, config: DictConfig) -> None:
        self._loader = loader
        self._config = config
        self._folder = Path(config.hydra.sweep.dir).absolute()
        given: Any = OmegaConf.to_container(config.hydra.overrides, resolve=False)  # interpolations stay as typed
        self._task: list[str] = given["task"]
        self._hydra: list[str] = given["hydra"]
        self._names: dict[tuple[int, int], str] = {}  # of new runs' directories, by cell and repeat
        self._sweep: Sweep | None = None

    def measure(self, jobs: Sequence[Sequence[str]]) -> list[JobReturn]:
        """Train each of these cells as often as ``sweep.repeats`` says; what was completed before is not done again.

        The returned values are images/s, the median of a cell's runs, None where none completed.

        Raises:
            ConfigError: something that concerns the sweep as a whole, before anything is measured.
            SystemExit: 130 after Ctrl-C, 143 after SIGTERM; what was measured is kept and compared.
        """
        check_bounds(OmegaConf.create({"sweep": self._config.sweep}))
        if started_by_torchrun():
            raise ConfigError("A sweep starts its runs itself; leave torchrun out, and set trainer.devices=N")
        self._folder.mkdir(parents=True, exist_ok=True)
        with alone_in(self._folder, "hydra.sweep.dir"), interruptible():
            given = of_cells(jobs)
            sweep = self._sweep = self._sweep or self._opened()
            cells = [sweep.cell(overrides) for overrides in given]
            try:
                self._run(sweep, cells)
            except KeyboardInterrupt as interrupt:
                self._break_off(sweep)
                sys.exit(exit_code(interrupt))
            return [self._returned(cell) for cell in cells]

    def _opened(self) -> Sweep:
        """The record of this sweep: new, or that of the directory to go on with."""
        keys = self._config.sweep
        earlier = read_sweep(self._folder)
        if earlier is None:
            directory.require_unused(self._folder)
        else:
            self._require_same_flags(earlier)
        began = earlier.began if earlier else time.strftime("%Y-%m-%dT%H:%M:%S%z")
        sweep = Sweep(self._again(), self._task, keys.repeats, keys.seed, began)
        if earlier:
            sweep.seconds, sweep.cells = earlier.seconds, earlier.cells
            for run in sweep.runs():  # one that completed just when the sweep was killed
                if run.status != "completed" and directory.completed(self._folder / run.directory):
                    run.status, run.error = "completed", None
        return sweep

    def _run(self, sweep: Sweep, cells: Sequence[Cell]) -> None:
        """Train what is not completed, and keep the record after each run."""
        visits = in_order(cells, sweep.repeats, sweep.seed)
        done = [run for repeat, cell in visits if (run := cell.run(repeat)) and run.status == "completed"]
        called = names(sweep.cells)
        self._name(sweep, visits)
        earlier, began = sweep.seconds, time.monotonic()
        sweep.status = "running"
        due = [(repeat, cell) for repeat, cell in visits if not any(run is cell.run(repeat) for run in done)]
        took: list[float] = []  # seconds of each run
        with ProgressDisplay(console(), len(due)) as display:
            display.say(told(len(cells), len(visits), len(done), self._folder))
            for number, (repeat, cell) in enumerate(due, 1):
                run = self._begun(sweep, cell, repeat)
                left = (len(due) - len(took)) * statistics.fmean(took) if took else None
                display.begins(called[cell.number], left)
                try:
                    self._train(cell, run)
                finally:
                    sweep.seconds = earlier + time.monotonic() - began
                    sweep.save(self._folder)
                took.append(run.seconds)
                display.completes(number)
                place = f"{number:>{len(str(len(due)))}}/{len(due)}"
                display.say(f"[{place}] {outcome(run, self._rate(run))}  {called[cell.number]}".rstrip())
        sweep.status = "completed"
        sweep.save(self._folder)

    def _begun(self, sweep: Sweep, cell: Cell, repeat: int) -> Run:
        """The run that comes next, with an empty directory; the record has it before it is there.

        Should this process be killed, the record tells which directory it may use again.
        """
        run = cell.run(repeat)
        if run is None:
            run = Run(repeat, self._names[cell.number, repeat], "interrupted", UNFINISHED, 0.0)
            cell.runs.append(run)
        run.status, run.error, run.seconds = "interrupted", UNFINISHED, 0.0
        directory.make_empty(self._folder / run.directory)
        sweep.save(self._folder)
        return run

    def _train(self, cell: Cell, run: Run) -> None:
        """Train once, and put into ``run`` how it ended."""
        folder = self._folder / run.directory
        began = time.monotonic()
        overrides = [*self._flags(), *cell.overrides, *self._hydra_overrides()]
        try:
            ended = train(overrides, folder, timeout=self._config.sweep.timeout_seconds)
        except KeyboardInterrupt:
            run.seconds = time.monotonic() - began
            run.error = "it was interrupted"
            if directory.completed(folder):  # it was about to end anyhow
                run.status, run.error = "completed", None
            raise
        run.status, run.error, run.seconds = ended.status, ended.error, ended.seconds

    def _break_off(self, sweep: Sweep) -> None:
        """Keep and compare what was measured, and say how to go on."""
        sweep.status = "interrupted"
        sweep.save(self._folder)
        with contextlib.suppress(KeyboardInterrupt, OSError):  # it may not matter any more; the terminal is gone
            if any(run.status == "completed" for run in sweep.runs()):
                conclude(self._folder)
            print(f"Interrupted; what was measured is kept. Go on with: {self._again()}", flush=True)

    def _again(self) -> str:
        """The command that goes on with this sweep."""
        where = str(self._config.hydra.sweep.dir)
        hydra = [text for text in self._hydra if not key_of(text).startswith(OF_THIS_START)]
        return shlex.join(
            ["python", "train.py", "-m", *self._flags(), *self._task, *hydra, f"hydra.sweep.dir={quoted(where)}"]
        )

    def _require_same_flags(self, earlier: Sweep) -> None:
        """The same overrides of another configuration are other cells."""
        theirs = [text for text in shlex.split(earlier.command) if text.startswith("--config-")]
        if theirs != self._flags():
            told = [" ".join(flags) or "neither --config-name nor --config-dir" for flags in (theirs, self._flags())]
            raise ConfigError(
                f"hydra.sweep.dir={self._folder} holds a sweep with {told[0]}, and this one has {told[1]}; "
                "give the same, or another folder"
            )

    def _flags(self) -> list[str]:
        """Hydra's flags with which ``train.py`` finds the same configuration."""
        name = self._config.hydra.job.config_name
        sources = self._config.hydra.runtime.config_sources
        folders = [source.path for source in sources if source.provider == "command-line"]
        return [f"--config-name={name}"] * (name != "config") + [f"--config-dir={path}" for path in folders]

    def _hydra_overrides(self) -> list[str]:
        """What the user said to Hydra that concerns a run."""
        return [text for text in self._hydra if not key_of(text).startswith(OF_THE_SWEEP)]

    def _name(self, sweep: Sweep, visits: Sequence[tuple[int, Cell]]) -> None:
        """Know each new run's directory, and that it is free, before the first begins."""
        new = [(repeat, cell) for repeat, cell in visits if cell.run(repeat) is None]
        own = {cell.number: self._subdirectory(cell) for cell in {cell.number: cell for _, cell in new}.values()}
        self._names = {
            (cell.number, repeat): own[cell.number] + (f".{repeat}" if repeat > 1 else "") for repeat, cell in new
        }
        directory.require_free(self._folder, self._names.values(), [run.directory for run in sweep.runs()])

    def _subdirectory(self, cell: Cell) -> str:
        """``hydra.sweep.subdir`` of a cell."""
        config = self._loader.load_sweep_config(self._config, cell.overrides)
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = cell.number
        before = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(config)
        try:
            return str(OmegaConf.select(config, "hydra.sweep.subdir"))
        finally:
            HydraConfig.instance().cfg = before

    def _rate(self, run: Run) -> float | None:
        with contextlib.suppress(OSError, ValueError):
            return rate_of(Record(read_summary(self._folder / run.directory / "summary.json")))
        return None

    def _returned(self, cell: Cell) -> JobReturn:
        """What a sweeper gets of a cell: failed ones too have been measured, as far as it is concerned."""
        rates = [rate for run in cell.runs if run.status == "completed" and (rate := self._rate(run)) is not None]
        value = statistics.median(rates) if rates else None
        return JobReturn(overrides=cell.overrides, status=JobStatus.COMPLETED, _return_value=value)


def told(cells: int, runs: int, done: int, folder: Path) -> str:
    """What a sweep is about to do, in a sentence."""
    counted = f"{cells} cell{'s' * (cells != 1)}, {runs} run{'s' * (runs != 1)}, one at a time, into {folder}"
    return counted + (f"; {done} completed before" if done else "")


def outcome(run: Run, rate: float | None) -> str:
    """How a run ended, in a few words; ``rate`` in images/s."""
    if run.status != "completed":
        return f"{run.status}: {run.error}"
    return "completed" if rate is None else f"{rate:,.{0 if rate >= 100 else 1}f} images/s"
