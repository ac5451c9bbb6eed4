"""Hydra's launcher ``processes``: trains the jobs of a sweep."""

import contextlib
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, OmegaConf, open_dict

from strobe.app.config.bounds import check_bounds
from strobe.app.config.checks import varied_keys
from strobe.app.run.apart import Ended, train
from strobe.app.sweep.campaign import Campaign, of_cells, opened
from strobe.app.sweep.ending import conclude
from strobe.errors import ConfigError
from strobe.overrides import key_of, quoted
from strobe.process.launch import started_by_torchrun
from strobe.process.locks import alone_in
from strobe.process.signals import exit_code
from strobe.records.sweep import Sweep, SweepCell

OF_THIS_START = ("hydra.mode", "hydra.sweep.dir", "hydra.run.")
OF_THE_SWEEP = (*OF_THIS_START, "hydra.sweep", "hydra/sweep", "hydra.launcher", "hydra/launcher")


def longest_training(given: str | Mapping[str, float] | None) -> float | None:
    """``trainer.max_time``, in either of its forms, in seconds; None without one."""
    if given is None:
        return None
    parts = ("days", "hours", "minutes", "seconds")
    named = dict(zip(parts, map(int, given.split(":")), strict=True)) if isinstance(given, str) else dict(given)
    with contextlib.suppress(TypeError):  # of a part that Lightning refuses
        return timedelta(**named).total_seconds()
    return None


class Processes:
    """Trains Hydra's jobs, each in its own process."""

    def __init__(self, loader: ConfigLoader, config: DictConfig) -> None:
        self._loader, self._config = loader, config
        self._folder = Path(config.hydra.sweep.dir).absolute()
        overrides: Any = OmegaConf.to_container(config.hydra.overrides, resolve=False)  # interpolations stay as typed
        self._task: list[str] = overrides["task"]
        self._hydra: list[str] = overrides["hydra"]
        self._campaign: Campaign | None = None

    def measure(self, jobs: Sequence[Sequence[str]]) -> list[JobReturn]:
        """Train each of these cells ``sweep.repeats`` times; completed runs are not repeated.

        The return values are images/s, the median of each cell's runs; None if none completed. A ConfigError tells of a
        mistake that concerns the whole sweep, before anything is trained. After Ctrl-C, completed runs are compared.
        """
        check_bounds(OmegaConf.create({"sweep": self._config.sweep}))
        if started_by_torchrun():
            raise ConfigError("A sweep starts its runs itself; leave torchrun out, and set trainer.devices=N")
        self._folder.mkdir(parents=True, exist_ok=True)
        with alone_in(self._folder, "hydra.sweep.dir"):
            given = of_cells(jobs)
            campaign = self._campaign = self._campaign or self._begun()
            cells = [campaign.sweep.cell(overrides) for overrides in given]
            try:
                campaign.measure(cells)
            except KeyboardInterrupt as interrupt:
                self._break_off(campaign.sweep)
                sys.exit(exit_code(interrupt))
            # To a sweeper, failed cells are measured, too.
            done = JobStatus.COMPLETED
            return [JobReturn(overrides=c.overrides, status=done, _return_value=campaign.rate(c)) for c in cells]

    def _begun(self) -> Campaign:
        keys = self._config.sweep
        fresh = Sweep(self._again(), self._task, keys.repeats, keys.seed, time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        varied = varied_keys(self._task) & {"trainer", "trainer.max_time", "experiment"}
        longest = None if varied else longest_training(self._config.trainer.get("max_time"))
        return Campaign(self._folder, opened(self._folder, fresh), self._train, self._subdirectory, longest)

    def _train(self, overrides: Sequence[str], folder: Path) -> Ended:
        """Train with a cell's overrides, and with the overrides of Hydra that concern a run."""
        hydra = [text for text in self._hydra if not key_of(text).startswith(OF_THE_SWEEP)]
        assert self._campaign is not None
        number = self._campaign.sweep.cell(overrides).number  # which tells the run that it is a sweep's
        arguments = [*self._flags(), *overrides, *hydra, f"hydra.job.num={number}"]
        return train(arguments, folder, timeout=self._config.sweep.timeout_seconds)

    def _break_off(self, sweep: Sweep) -> None:
        """Compare what was measured, and say how to continue."""
        with contextlib.suppress(KeyboardInterrupt):  # a second request leaves the comparison out
            if any(run.status == "completed" for run in sweep.runs()):
                conclude(self._folder)
            print(f"Interrupted; what was measured is kept. Continue with: {sweep.command}", flush=True)

    def _again(self) -> str:
        """The command that continues this sweep."""
        hydra = [text for text in self._hydra if not key_of(text).startswith(OF_THIS_START)]
        hydra.append(f"hydra.sweep.dir={quoted(str(self._config.hydra.sweep.dir))}")
        return shlex.join(["python", "train.py", "-m", *self._flags(), *self._task, *hydra])

    def _flags(self) -> list[str]:
        """Hydra's flags that let ``train.py`` find the same configuration."""
        name = self._config.hydra.job.config_name
        sources = self._config.hydra.runtime.config_sources
        folders = [source.path for source in sources if source.provider == "command-line"]
        return [f"--config-name={name}"] * (name != "config") + [f"--config-dir={path}" for path in folders]

    def _subdirectory(self, cell: SweepCell) -> str:
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
