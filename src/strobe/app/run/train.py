"""One run: build it, train, test, and leave a record whatever happens."""

import errno
import logging
import math
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
from hydra.core.hydra_config import HydraConfig
from lightning.fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig
from rich.console import Console
from torch import nn

from strobe.app.build.checkpoint import (
    best_of,
    find_checkpoint,
    megabytes,
    require_fitting,
    tidy,
    unkept,
    wanted,
    write_held,
)
from strobe.app.build.instantiate import Parts, build
from strobe.app.config.checks import check, without_effect
from strobe.app.config.compose import in_sweep
from strobe.app.config.resuming import CHECKPOINTS
from strobe.app.engines.torch import full_shared_memory, lost_batch
from strobe.app.run.after_training import measure_ceilings, report, summarise, take_part
from strobe.app.run.ending import Ending
from strobe.app.run.faulty_files import others_named
from strobe.app.run.forecast import Forecast
from strobe.app.run.monitored import missing_metric
from strobe.attach.lost_ranks import LostRanks
from strobe.attach.place import FULL
from strobe.attach.record import begin, meanwhile, readable, save
from strobe.callbacks import StepRecorder
from strobe.callbacks.recording import warning_only
from strobe.errors import ConfigError, DataError, StrobeError
from strobe.measure import contention, environment, pagecache
from strobe.probe.ceilings import blank
from strobe.probe.ranks import Ranks, together
from strobe.process.fork import MEMORY
from strobe.process.launch import rank
from strobe.process.signals import DEADLINE, AskedToEnd, Requests, exit_code, requests
from strobe.records.joining import forget_failures, says_gone, what_failed
from strobe.records.step_table import read_table
from strobe.report.terminal import print_summary

log = logging.getLogger(__name__)

ASKING = 0.03  # seconds, in which that is asked
MOST_FILES = 200  # of which it is asked whether the page cache holds them


def run(cfg: DictConfig) -> None:
    """Train as configured; the record in the run's directory says how it ended, also by a signal, or by an error."""
    run_dir = Path(HydraConfig.get().runtime.output_dir)
    quieten()
    with requests() as asked:
        run = Run(cfg, run_dir, asked)
        try:
            run.train()
        except (KeyboardInterrupt, SystemExit) as error:
            run.end("interrupted", error)
            sys.exit(exit_code(error))
        except Exception as error:
            if asked.number is not None:  # which ended loader workers, or another rank, before this process
                run.end("interrupted", AskedToEnd(asked.number))
                sys.exit(128 + asked.number)
            known = explained(error, run_dir, cfg, run.parts.model if run.parts else None)
            run.end("failed", known)
            if known is error:
                raise
            raise known from error
        run.end("completed")
        asked.check()


def explained(
    error: Exception, run_dir: Path | None = None, cfg: DictConfig | None = None, model: nn.Module | None = None
) -> Exception:
    """An error of Lightning, of loader processes or of the disk as one that says what to do; any other as it is."""
    if (lacking := missing_metric(error, cfg)) is not None:
        return lacking
    if isinstance(error, MisconfigurationException) or "`val_check_interval`" in str(error):
        return ConfigError(f"Lightning refuses this run: {' '.join(str(error).split())}")
    if run_dir is not None and cfg is not None and (short := _short_of(error, run_dir, cfg, model)):
        return short
    if run_dir is not None and (failed := what_failed(run_dir, error)) and "rank" in failed:
        return StrobeError(f"{failed['message']}. The record is in {run_dir}")
    if rank() and says_gone(error):
        return StrobeError(f"Rank {rank()} cannot reach rank 0, or that has ended: {str(error).partition(chr(10))[0]}")
    return (isinstance(error, RuntimeError) and lost_batch(error)) or error


def _short_of(error: Exception, run_dir: Path, cfg: DictConfig, model: nn.Module | None) -> DataError | None:
    """What to do about an error of this machine's: its disk, or its memory; None for any other."""
    if (number := getattr(error, "errno", None)) in FULL:
        no_semaphore = shutil.disk_usage("/dev/shm").free < 1e6 < shutil.disk_usage(run_dir).free
        return (
            full_shared_memory() if no_semaphore else DataError(f"The disk is full: {_no_space(run_dir, cfg, model)}")
        )
    if number == errno.EFBIG:
        return DataError(
            f"A file of this run grew beyond what one may have here, in {run_dir} or in {tempfile.gettempdir()}; raise "
            "the limit (ulimit -f), or write no checkpoints with checkpoint.save=none"
        )
    words = f"{type(error).__name__}: {error}".partition("\n")[0]
    if isinstance(error, RuntimeError | MemoryError | OSError) and MEMORY.search(words):
        return lost_batch(error) or DataError(
            f"Training ran out of memory at data.batch_size={cfg.data.batch_size} ({words}); give less"
        )
    return None


class Run:
    """A run and what is known of it so far."""

    def __init__(self, cfg: DictConfig, run_dir: Path, requests: Requests) -> None:
        self.cfg = cfg
        self.run_dir = run_dir
        self.requests = requests
        self.ending = Ending(requests)
        self.parts: Parts | None = None
        self.metrics: dict[str, float] = {}
        self.page_cache: float | None = None  # share of the training files that it held when training began
        self.meanwhile: dict[str, Any] = {}  # keys of the record: what machine and threads did while this trained
        self.began = time.time()
        self.seconds = 0.0  # of training and validation
        self._ends, self._ended = threading.Lock(), False

    def train(self) -> None:
        """Build the parts, train, and test the best weights."""
        cfg = self.cfg
        check(cfg)
        for warning in without_effect(cfg) if rank() == 0 else ():
            log.warning(warning)
        prepare_process(cfg)
        lightning.seed_everything(cfg.seed, workers=True, verbose=False)
        self._require_room()
        self.parts = parts = build(cfg, self.run_dir)
        self._require_room(parts.model)
        checkpoint = find_checkpoint(cfg, self.run_dir)
        if checkpoint is not None:
            require_fitting(checkpoint, parts.model)
            log.info("Resuming from %s", checkpoint)
        if not in_sweep() and rank() == 0:
            forecast = Forecast(ceilings=cfg.ceilings is not False)
            parts.trainer.callbacks.append(forecast)  # type: ignore[attr-defined]
        if parts.data.generated:
            log.info("The data is generated, so figures say nothing about real images")
        self.page_cache = pagecache.resident(parts.data.training_files(MOST_FILES), seconds=ASKING)
        parts.trainer.callbacks.append(LostRanks(self.run_dir, told=True))  # type: ignore[attr-defined]
        if rank() == 0:
            forget_failures(self.run_dir)
            begin(summarise(cfg, parts, self.run_dir, status="failed", error=None, metrics={}), self.run_dir)
        self.ending.join(parts.trainer)
        look = self.ending.look if parts.trainer.world_size > 1 else None
        self.requests.watch(self.give_up, look, DEADLINE if rank() == 0 else DEADLINE / 2)
        before, began = contention.read(), time.monotonic()
        with others_named(parts.data) if parts.trainer.world_size == 1 else nullcontext():
            try:
                parts.trainer.fit(parts.model, datamodule=parts.data, ckpt_path=checkpoint)
            finally:
                self.seconds = time.monotonic() - began
                recorders = [one for one in parts.trainer.callbacks if isinstance(one, StepRecorder)]  # type: ignore[attr-defined]
                self.meanwhile = meanwhile(before, contention.read(), recorders[0].step_log if recorders else None)
        self.requests.check()
        if not len(read_table(self.run_dir / "steps.csv", last=1)) and rank() == 0:
            log.warning("No step was trained: the checkpoint, or the limits in trainer.*, leave nothing to do")
        self._keep_metrics()
        if cfg.test:
            best = best_of(parts.trainer)
            parts.trainer.test(parts.model, datamodule=parts.data, ckpt_path=best, verbose=False)
            self.requests.check()
            self._keep_metrics()
        write_held(parts.trainer, but=unkept(self.seconds))

    def _require_room(self, model: nn.Module | None = None) -> None:
        if shutil.disk_usage(self.run_dir).free < 1e6 * megabytes(self.cfg, model):
            raise _no_space(self.run_dir, self.cfg, model)

    def _keep_metrics(self) -> None:
        assert self.parts is not None
        self.metrics |= {name: float(value) for name, value in self.parts.trainer.callback_metrics.items()}

    def end(self, status: str, error: BaseException | None = None, *, hangs: bool = False) -> None:
        """Write the record and show it. Rank 0 does this for all ranks; a rank that failed does it for itself.

        ``hangs``: whether the main thread does, so that nothing may be asked of the device.
        """
        self.requests.patience = math.inf  # what follows is short, and a request waits for it
        with self._ends:
            if not self._ended:
                self._ended = True
                self._end(status, error, hangs=hangs)
        if self.requests.number is not None and not hangs:
            self.ending.leave()

    def give_up(self, number: int) -> None:
        """Leave a record although the main thread hangs, in a process that was asked to end."""
        if not self._ended:
            self.end("interrupted", AskedToEnd(number), hangs=True)
        self.ending.kill()

    def _end(self, status: str, error: BaseException | None, *, hangs: bool) -> None:
        path = self.run_dir / "summary.json"
        if not self.run_dir.is_dir():
            raise DataError(f"{self.run_dir} was removed while training ran, so nothing is left of it; train again")
        if rank() != 0 and status != "failed":
            if self.parts and status == "completed":
                self.requests.patience = 0.0
                take_part(self.cfg, self.parts)
            return
        alone, completed = self.parts is None or self.parts.trainer.world_size == 1, status == "completed"
        took = self.seconds or time.time() - self.began  # of one that hangs it is not known yet
        if not alone and not completed and path.exists() and path.stat().st_mtime >= self.began:
            return  # another rank's failure came first, and is the cause of this one
        if alone and not completed and self.parts is not None:
            if not hangs:
                with suppress(RuntimeError):  # of a device that answers no more, from a metric that is computed
                    self.metrics |= readable(self.parts.trainer.callback_metrics)
            with warning_only("last.ckpt"):
                write_held(self.parts.trainer, but=unkept(took, completed=False))
        summary = summarise(self.cfg, self.parts, self.run_dir, status=status, error=error, metrics=self.metrics)
        summary["environment"]["page_cache"] = self.page_cache
        summary |= self.meanwhile

        write = partial(save, summary, self.run_dir)
        write()
        if self.parts and self.parts.trainer.global_step and wanted(self.cfg) == "auto":
            tidy(self.run_dir / CHECKPOINTS, took, self.began, completed=completed)
        if completed and self.parts:
            requested = not in_sweep() if self.cfg.ceilings is None else self.cfg.ceilings
            measures = bool(requested and summary["steps"]["measured"])
            with together(self.parts.trainer, wanted=measures) as ranks:
                if ranks and ranks.end_together:
                    report(self.cfg, None, summary, self.run_dir)  # what is known is not lost with this process
                if measures:
                    self._measure_ceilings(self.parts, summary, write, ranks)
        report(self.cfg, self.parts, summary, self.run_dir)
        print_summary(summary, self.run_dir, Console())

    def _measure_ceilings(
        self, parts: Parts, summary: dict[str, Any], write: Callable[[], None], ranks: Ranks | None
    ) -> None:
        try:
            self.requests.patience = 0.0
            if self.requests.number is None:
                measure_ceilings(self.cfg, parts, summary, write, ranks)
        except KeyboardInterrupt as interrupt:
            self.requests.number = exit_code(interrupt) - 128
        finally:
            self.requests.patience = math.inf
        if self.requests.number is not None:
            log.warning("Measuring was interrupted, so some figures are missing below; the training is complete")
            summary["ceilings"] = summary["ceilings"] or blank("measuring was interrupted")


def _no_space(run_dir: Path, cfg: DictConfig, model: nn.Module | None) -> DataError:
    free = shutil.disk_usage(run_dir).free
    return DataError(
        f"hydra.run.dir={run_dir} has {free / 1e6:,.0f} MB free, and a run needs about "
        f"{megabytes(cfg, model):,.0f} MB; "
        "free some space, write elsewhere with hydra.run.dir=FOLDER, or write no checkpoints with checkpoint.save=none"
    )


def once() -> Callable[[logging.LogRecord], bool]:
    """A filter that lets each message pass once: Python warns again whenever a library changes the filters."""
    said = Counter[str]()

    def new(record: logging.LogRecord) -> bool:
        said[text := record.getMessage().split(": ", 2)[-1]] += 1  # less the file and the line that warn
        return said[text] == 1

    return new


def prepare_process(cfg: DictConfig) -> None:
    """Give torch its threads, and have malloc keep memory, as configured."""
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    if cfg.keep_memory:
        environment.keep_memory()


def quieten() -> None:
    """Send warnings to the log, and drop those that Strobe's own record makes superfluous."""
    logging.captureWarnings(capture=True)
    logging.getLogger("py.warnings").filters[:] = [once()]
    for name in ("lightning.pytorch", "botocore"):  # the latter says where it found credentials, used or not
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*it is recommended to use a single device.*",
        ".*smaller than the logging interval.*",
        ".*your dataloader is not resumable.*",  # the order of batches is
        ".*The dirpath has changed.*",  # a resumed run has a directory of its own
        ".*Checkpoint directory .* exists and is not empty.*",  # a run goes on in its own
        ".*treespec, LeafSpec.*",  # Lightning 2.6.6 on torch 2.15
    ):
        warnings.filterwarnings("ignore", message)
