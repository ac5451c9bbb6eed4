"""From torch.profiler's export to the file that is kept."""

import errno
import gzip
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from .assemble import (
    begin_steps,
    clock_of,
    drop_event,
    fit_updates,
    keep_first_steps,
    name_fetches,
    name_process,
)
from .budget import Budget, prune
from .loading import Loading
from .normalise import normalise
from .ranges import Step
from .tracefile import Trace, TraceError, read_trace, without_gc, write_trace

_log = logging.getLogger(__name__)
MANY = 50  # steps, which take seconds to write


class TraceWriter:
    """Writes `<worker>.<ns>.pt.trace.json.gz`, or `<worker>_partial...` for a cycle that did not finish.

    Args:
        directory: Where traces go.
        worker: What the plugin calls a worker: host, process and rank.
        rank: Of this process; among its traces the oldest go first.
        budget: How large one may become.
        keep: How many of them to keep; None for all.
        traces: To which those written are added.
    """

    def __init__(
        self, directory: Path, worker: str, *, rank: int, budget: Budget, keep: int | None, traces: list[Path]
    ) -> None:
        self.directory = directory
        self.worker = worker
        self.rank = rank
        self.budget = budget
        self.keep = keep
        self.traces = traces

    def write(
        self,
        profiler: torch.profiler.profile,
        steps: Sequence[Step],
        loading: Loading,
        *,
        whole: bool,
        drop: str | None,
    ) -> None:
        """Write a trace in one move, without the range called `drop`; log a warning if the disk refuses it."""
        path = self.directory / f"{self.worker}{'' if whole else '_partial'}.{time.time_ns()}.pt.trace.json.gz"
        if len(steps) >= MANY:
            _log.info("Writing a trace of %d steps and what they did; training waits for it", len(steps))
        try:
            with without_gc():
                self._write(profiler, path, steps, loading, drop)
        except OSError as error:
            _log.warning("No trace could be written to %s (%s); is there space?", path, error.strerror)
        except TraceError as error:
            _log.warning("No trace could be written to %s: %s", path, error)

    def _write(
        self,
        profiler: torch.profiler.profile,
        path: Path,
        steps: Sequence[Step],
        loading: Loading,
        drop: str | None,
    ) -> None:
        trace = self._export(profiler)
        if drop is not None:
            drop_event(trace, drop)
        clock = clock_of(trace)
        begin_steps(trace, steps, clock)
        name_process(trace, os.getpid(), f"training, rank {self.rank}")
        trace["traceName"] = path.name
        fit_updates(trace)
        name_fetches(trace)
        trace["traceEvents"] += loading.events(clock, steps[0].start, steps[-1].end)
        normalise(trace)
        write_trace(path, trace)
        self._fit(path, trace, len(steps))
        self.traces.append(path)
        if self.keep is not None:
            prune(self.directory, self.rank, self.keep)
            self.traces[:] = [kept for kept in self.traces if kept.exists()]

    def weigh(self, profiler: torch.profiler.profile) -> int:
        """Bytes that what was recorded takes in a file, roughly."""
        with TemporaryDirectory() as scratch:
            plain = Path(scratch, "trace.json")
            profiler.export_chrome_trace(str(plain))
            return len(gzip.compress(plain.read_bytes(), compresslevel=6))

    def _export(self, profiler: torch.profiler.profile) -> Trace:
        with TemporaryDirectory(prefix=".trace-", dir=self.directory) as scratch:
            plain = Path(scratch, "trace.json")
            profiler.export_chrome_trace(str(plain))
            if not plain.exists():  # torch only prints why
                raise OSError(errno.EIO, "torch.profiler exported nothing")
            return read_trace(plain)

    def _fit(self, path: Path, trace: Trace, steps: int) -> None:
        """Cut a file that came out larger than allowed, and remember."""
        size, left = path.stat().st_size, steps
        while (fitting := self.budget.excess(path.stat().st_size, left)) is not None:
            self.budget.active = left = fitting
            keep_first_steps(trace, left)
            write_trace(path, trace)
        if left < steps:
            _log.warning("%s took %.3g MB; its last %d steps were left out", path.name, size / 1e6, steps - left)
        if self.budget.max_bytes and (size := path.stat().st_size) > self.budget.max_bytes:
            limit = f"max_mb={self.budget.max_bytes / 1e6:g}"
            _log.warning("%s: %s takes %.3g MB with one step; give that much", limit, path.name, size / 1e6)
