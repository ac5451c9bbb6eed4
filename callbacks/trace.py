"""Profile training with torch.profiler, and write traces that TensorBoard, Perfetto and scripts read alike.

Options: https://docs.pytorch.org/docs/stable/profiler.html. File names follow torch-tb-profiler 0.4.3, which takes
`<worker>.<ns>.pt.trace.json.gz` (its `consts.WORKER_PATTERN`).
"""

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .figures import pixels
from .lightnings import TensorBoardLogger, seconds_left, steps_left
from .owners import state_before_fit
from .phases import PhaseWatch
from .ranges import Ranges, Step
from .recording import Recording
from .schedule import Schedule
from .trace_writer import Budget, TraceWriter
from .tracer import Tracer, Tracing

_log = logging.getLogger(__name__)


class TraceProfiler(Recording):
    """Profile training in cycles of wait, warmup and active steps; write one trace a cycle and rank.

    Steps are numbered as Lightning counts batches over all epochs, also in a resumed run; the schedule counts from
    the first batch of each `fit`. Fetch, transfer, forward, backward, optimizer and callbacks are ranges in the trace,
    side by side. Validation, and what happens between epochs, is between steps.

    A finished cycle leaves `<host>_<pid>_rank<r>.<ns>.pt.trace.json.gz`. A run that ends inside one leaves
    `<host>_<pid>_rank<r>_partial.<ns>.pt.trace.json.gz` with the active steps it reached, and with the one that failed.

    Spans that loaders record with `strobe.callbacks.spans`, in worker processes and in threads, appear in the trace as
    processes of their own. TensorBoard, if the trainer logs to it, gets the schedule and the operators as text,
    and the recorded steps as a picture.

    Args:
        directory: Where traces go; made when training starts. TensorBoard wants them beside its event files.
        tables: Where rank 0 writes operator tables over all cycles when training ends; None for none.
        skip_first, skip_first_wait, wait, warmup, active, repeat: See :class:`strobe.callbacks.schedule.Schedule`.
        record_shapes, profile_memory, with_flops: See `torch.profiler.profile`.
        with_stack: Record Python stacks; may corrupt ranges (pytorch issue 174555).
        max_mb: Largest trace file, in megabytes. A step of the first warmup is recorded to see how much one takes; if
        need be fewer active steps are recorded, or even one without the costly options. None: no limit.
        keep: How many traces of each rank to keep in `directory`, newest first; None: all.
        stop_after: End training when the last cycle is recorded.
        loggers: Whether the trainer's TensorBoard gets the schedule, operators and steps.

    Raises:
        ValueError: A number is out of range.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        tables: str | Path | None = None,
        skip_first: int = 0,
        skip_first_wait: int = 0,
        wait: int = 1,
        warmup: int = 1,
        active: int = 3,
        repeat: int = 1,
        record_shapes: bool = True,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        max_mb: float | None = None,
        keep: int | None = None,
        stop_after: bool = False,
        loggers: bool = True,
    ) -> None:
        super().__init__(directory)
        self.schedule = Schedule(skip_first, skip_first_wait, wait, warmup, active, repeat)
        for name, value in {"max_mb": max_mb, "keep": keep}.items():
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value} is too small; give more than 0, or None for no limit")
        self.options = {
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
        }
        self.tables = Path(tables) if tables is not None else None
        self.max_mb, self.keep, self.stop_after, self.loggers = max_mb, keep, stop_after, loggers
        self.cycle = 0  # in this `fit`; it grows when a cycle's trace is due
        self.traces: list[Path] = []  # that were written, oldest first, less those that `keep` removed
        self.steps: list[Step] = []  # the active ones recorded to their end, with the phases that this measured
        # Which of `active` and `repeat` a short `fit` may lower, so that enough steps stay unprofiled. Where a time
        # limit ends it, the first two steps tell how many there will be; not with several ranks, which must agree.
        self.may_shorten: Collection[str] = ()
        self._times: list[float] = []  # when training began and its first two steps ended, monotonic seconds
        self._ranges = PhaseRanges()
        self._tracing = Tracing(self._ranges)

    def __getstate__(self) -> dict[str, Any]:
        """A copy is as newly made."""
        ranges = PhaseRanges()
        return state_before_fit(self, _ranges=ranges, _tracing=Tracing(ranges))

    @property
    def recording(self) -> bool:
        """Whether the current step is a warmup or an active one; changes at the end of a step, which has the cost."""
        return self._tracing.recording

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Move behind the checkpoints, and prepare to record loaders."""
        super().setup(trainer)
        if stage == "fit":
            self._tracing.loading.open(self.schedule)

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Begin the first step, before its batch is fetched; raises an OSError if the directory cannot be made."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.cycle = 0
        self._times = [time.monotonic()]
        with self._or_go_on_without(trainer):
            schedule = self._fitting(trainer, steps_left(trainer))
            self._start(trainer, schedule)
            self._show(trainer, schedule)
            self._watch(trainer)

    def on_train_epoch_start(self, *_: Any) -> None:
        """A step does not hold what happens between epochs."""
        self._tracing.begin()

    def on_validation_start(self, *_: Any) -> None:
        """Show a validation as one range."""
        self._ranges.pause()

    def on_validation_end(self, *_: Any) -> None:
        """A step does not hold the validation before it."""
        self._ranges.resume()
        self._tracing.begin()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Note when the batch arrived."""
        self._tracing.fetched(trainer.current_epoch, batch_idx)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """End the step, write the trace of a finished cycle and begin the next step."""
        if (tracer := self._tracing.tracer) is None:
            return
        with self._or_go_on_without(trainer):
            if len(self._times) < 3:
                self._times.append(time.monotonic())
                if len(self._times) == 3 and trainer.world_size == 1 and not tracer.active:
                    self._fit_time(trainer, tracer)
            tracer.step(self._ranges.boundary())
            self.cycle = tracer.cycle
            if tracer.done:
                self.finish(trainer)
                trainer.should_stop = trainer.should_stop or self.stop_after
            else:
                self._watch(trainer)

    def on_exception(self, trainer: Any, *_: Any) -> None:
        """Write what was recorded, with the step that failed."""
        self.finish(trainer, failed=True)
        self._tracing.loading.close()

    def teardown(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Stop the profiler, if it still runs."""
        self.finish(trainer)
        self._tracing.loading.close()

    def _fitting(self, trainer: Any, steps: float) -> Schedule:
        """The schedule that suits the number of steps of this `fit`; logs it if it is another one."""
        schedule = self.schedule if self.stop_after else self.schedule.shortened(steps, self.may_shorten)
        if schedule != self.schedule and trainer.is_global_zero:
            _log.info("Training is short (steps: %d), so fewer are traced: %s", steps, schedule.describe())
        return schedule

    def _fit_time(self, trainer: Any, tracer: Tracer) -> None:
        """Shorten the schedule if a time limit leaves few steps; the first step alone may start workers or compile."""
        began, first, second = self._times
        left = max(0.0, seconds_left(trainer)) / max(min(first - began, second - first), 1e-9)
        if left < steps_left(trainer):
            tracer.shorten(schedule := self._fitting(trainer, 2 + left))
            self._show(trainer, schedule)

    def _show(self, trainer: Any, schedule: Schedule) -> None:
        besides = ", ".join(name for name, value in self.options.items() if value) or "no options"
        for board in self._boards(trainer):
            board.add_text("trace/schedule", f"{schedule.describe()}; {besides}", trainer.global_step)

    def _start(self, trainer: Any, schedule: Schedule) -> None:
        budget = Budget(self.max_mb and self.max_mb * 1e6, schedule.active)
        self._tracing.start(
            schedule,
            self.options,
            trainer.strategy.root_device,
            trainer.train_dataloader,
            writer=TraceWriter(self.directory, self.traces, budget, trainer.global_rank, self.keep),
            first=trainer.fit_loop.epoch_loop.batch_progress.total.ready,
            tables=trainer.is_global_zero,
        )

    def _watch(self, trainer: Any) -> None:
        """Watch the phases of recorded steps; other steps cost nothing."""
        if self.recording:
            self._ranges.install(trainer)
        else:
            self._ranges.remove(trainer)
        self._tracing.begin()

    def finish(self, trainer: Any, *, failed: bool = False) -> None:
        """Write what was recorded in a cycle that did not finish; a second time does nothing."""
        if (tracer := self._tracing.tracer) is None:
            return
        phases = self._ranges.boundary()
        self._ranges.remove(trainer)
        with self._or_go_on_without(trainer):  # nor hide the error that ended the run
            self._tracing.stop(phases, failed=failed)
            self.cycle = tracer.cycle
            self.steps += tracer.steps
            if tracer.last_cycle and tracer.operators is not None:  # none, where the end came while it was written
                if self.tables is not None:
                    tracer.operators.write(self.tables)
                for board in self._boards(trainer):
                    from .timeline import draw

                    board.add_text("trace/operators", tracer.operators.markdown(), trainer.global_step)
                    picture = pixels(draw(tracer.last_cycle, self._tracing.loading.lanes))
                    board.add_image("trace/timeline", picture, trainer.global_step, dataformats="HWC")

    @contextmanager
    def _or_go_on_without(self, trainer: Any) -> Iterator[None]:
        """A profiler that fails must not end training."""
        try:
            yield
        except Exception as error:
            full = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
            told = f"The profiler failed and was switched off{full}; a trace or tables may be missing"
            _log.warning(told, exc_info=not full)
            self._tracing.abandon()
            self._ranges.remove(trainer)

    def _boards(self, trainer: Any) -> Iterator[Any]:
        """The SummaryWriters of the trainer's TensorBoard loggers, on rank 0; flushed afterwards."""
        for logger in trainer.loggers if self.loggers and trainer.is_global_zero else ():
            if isinstance(logger, TensorBoardLogger):
                yield logger.experiment
                logger.experiment.flush()  # a run that is killed leaves what it showed


class PhaseRanges(Ranges):
    """Those of Lightning's phases."""

    def __init__(self) -> None:
        super().__init__()
        self._watch = PhaseWatch(self)

    def install(self, trainer: Any) -> None:
        """Begin to watch; does nothing when it does already."""
        self._watch.install(trainer)
        self.paused = False

    def remove(self, trainer: Any) -> None:
        """Cease to watch; safe when it does not."""
        self.boundary()
        self.paused = True
        self._watch.remove(trainer)
