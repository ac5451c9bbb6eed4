"""The callback for any Trainer: it records a training, and says at its end where the time went."""

import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

from torch.compiler import is_compiling

from strobe.attach import outside
from strobe.attach.ending import OfScript
from strobe.attach.lost_ranks import LostRanks
from strobe.attach.place import command, new_directory, tell
from strobe.attach.ranks import shared_directory
from strobe.attach.record import begin, complete, readable, status_of, summarise
from strobe.attach.settings import keeps_its_profiler, schedule_of, schedule_on, settings_of, what_is_trained
from strobe.callbacks.lightnings import Callback, join_latest
from strobe.callbacks.owners import restore_idle, skip_idle, state_before_fit
from strobe.callbacks.recording import come_last
from strobe.callbacks.steps import StepRecorder
from strobe.callbacks.trace import TraceProfiler
from strobe.callbacks.worker_lines import WorkerLines
from strobe.measure import contention
from strobe.process.output import note
from strobe.process.signals import is_of_handler, postponed
from strobe.records.files import make_room
from strobe.records.joining import note_failure, what_failed


def _passed_on(hook: str) -> Callable[..., None]:
    """A hook that lets the recorders have theirs."""

    def call(self: "Strobe", trainer: Any, *given: Any, **named: Any) -> None:
        if self._parts:
            self._guarded(self._each, trainer, hook, *given, **named)

    call.__name__ = hook
    return call


class Strobe(Callback):
    """Record each ``fit`` of a Trainer; at its end, whatever ended it, print the verdict and leave a record.

    It changes nothing about the training: no weight, no random number, no metric, no logger. An error of its own is
    said once, and training goes on. Of several ranks each records its own steps, in one directory; rank 0 tells.

    Args:
        directory: Where the record goes; by default ``strobe-runs/<date>/<time>-<script>``. Where that holds one
            already, -2, -3 ... is added.
        trace: Also record some steps with torch.profiler, by default two if they are trained on a CUDA device; a
            mapping changes its schedule, in steps: ``wait``, ``warmup``, ``active``, ``repeat`` (0: until training
            ends).
        report: Whether to write ``report.html``.

    Raises:
        ValueError: ``trace`` has another key, or a number that is out of range.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        trace: bool | Mapping[str, int] | None = None,
        report: bool = True,
    ) -> None:
        join_latest()
        self.directory = None if directory is None else Path(directory)
        self.trace = schedule_of(trace)
        self.report = report
        self.place: Path | None = None  # of the latest record
        self._begun = False  # whether the latest `fit` has come to training, or at least close
        self._parts: list[Any] = []
        self._recorder = StepRecorder(Path(), loggers=False)
        self._listener: _Listener | None = None
        self._others: LostRanks | None = None
        self._ending: OfScript | None = None
        self._before: contention.Reading | None = None
        self._trains_since: float | None = None  # by time.monotonic()
        self._workers: WorkerLines | None = None  # which are looked at before `fit` begins

    def __getstate__(self) -> dict[str, Any]:
        """A copy is as newly made."""
        parts = dict.fromkeys(("place", "_listener", "_others", "_ending", "_before", "_workers"))
        return state_before_fit(self, _parts=[], _recorder=StepRecorder(Path(), loggers=False), **parts)

    @property
    def recording(self) -> bool | None:
        """Whether a profiler records the current step; None without one."""
        return bool(self._parts[0].recording) if len(self._parts) > 1 else None  # the tracer comes first

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Go behind all other callbacks, so that a step ends after them.

        Workers are looked at from here on: `estimated_stepping_batches` in `configure_optimizers` starts them. The
        record may have no directory yet.
        """
        self._begun = self._begun and stage != "fit"
        if stage == "fit":
            self._forget_workers()
            known = self.directory if self.directory is not None and self.directory.is_dir() else None
            self._workers = WorkerLines(known or Path(tempfile.gettempdir()))
        if stage == "fit" and self in trainer.callbacks:  # not of another callback, which passes on what it hears
            come_last(self, trainer)

    def on_fit_start(self, trainer: Any, *given: Any) -> None:
        """Begin a record. Lightning's tuners, which end their own `fit` here, come first and leave none."""
        self._begun = True
        self._guarded(self._begin, trainer)
        if self._parts:
            self._guarded(self._each, trainer, "on_fit_start", *given)

    on_train_epoch_start = _passed_on("on_train_epoch_start")
    on_train_epoch_end = _passed_on("on_train_epoch_end")
    on_validation_start = _passed_on("on_validation_start")
    on_validation_end = _passed_on("on_validation_end")

    def on_train_start(self, trainer: Any, *given: Any) -> None:
        """Learn of batches whose size the module tells, as ``self.log(..., batch_size=32)``."""
        self._trains_since = time.monotonic()
        if len(self._parts) > 1 and trainer.is_global_zero:
            self._guarded(self._make_way, trainer)
        if self._parts:
            self._guarded(self._keep, trainer)
        if self._parts:
            self._guarded(self._each, trainer, "on_train_start", *given)
        if self._parts:
            self._guarded(self._listen, trainer)
        if self._ending is not None:
            self._ending.hear_hangup()

    def on_train_end(self, trainer: Any, *given: Any) -> None:
        """End the last epoch."""
        if self._parts:
            self._guarded(self._each, trainer, "on_train_end", *given)
            self._has_trained()

    def _has_trained(self) -> None:
        if self._trains_since is not None:
            outside.trained(self._trains_since, time.monotonic())
        self._trains_since = None

    def on_train_batch_end(self, trainer: Any, *given: Any) -> None:
        """End the step; written out, as it is the one hook of every step."""
        try:
            for part in self._parts:
                part.on_train_batch_end(trainer, *given)
        except Exception as error:
            self._fail(trainer, error)
        if self._ending is not None:
            self._ending.on_train_batch_end()

    def on_validation_batch_end(self, *_: Any) -> None:
        """Let training end here, if a rank was asked to end it."""
        if self._ending is not None:
            self._ending.on_validation_batch_end()

    def _among_ranks(self, trainer: Any, *given: Any) -> None:
        """The ``on_before_backward`` of one of several ranks, a hook of every step that one process does not need."""
        type(self).on_before_backward(self, trainer, *given)  # which a derived class may have
        if self._parts:
            self._guarded(self._recorder.on_before_backward, trainer, *given)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the record: Lightning calls no `teardown` then."""
        if not self._begun and trainer.state.fn == "fit" and isinstance(exception, Exception):
            self._tell_of_none(trainer, exception)
        if self._ending is not None:
            self._ending.tell(exception)
        with postponed(signal.SIGCHLD):  # by which torch learns of more workers that have died
            self._guarded(self._end, trainer, "on_exception", pl_module, exception)
        self._forget_workers()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End the record."""
        self._guarded(self._end, trainer, "teardown", pl_module, stage)
        self._forget_workers()

    def _tell_of_none(self, trainer: Any, error: Exception) -> None:
        """Say why there is no record; of several, such as the script's own and that of `strobe run`, one does."""
        if trainer.is_global_zero and next((one for one in trainer.callbacks if isinstance(one, Strobe)), self) is self:
            note(f"Strobe has no record of this training: {type(error).__name__} ended it before it began.")

    def _tracer(self, trainer: Any, place: Path) -> TraceProfiler | None:
        if not (schedule := schedule_on(trainer.strategy.root_device, self.trace)):
            return None
        return TraceProfiler(place / "tensorboard", tables=place / "tables", loggers=False, **schedule)  # type: ignore[arg-type]

    @outside.own_work()
    def _begin(self, trainer: Any) -> None:
        for part in self._parts:  # of a `fit` whose end another callback's error kept from this one
            part.on_exception(trainer)
        self._let_go()
        self.place = None
        if any(isinstance(one, Strobe) and one._parts for one in trainer.callbacks):
            return  # of two, such as the script's own and that of `strobe run`, one is enough
        self.place = place = shared_directory(trainer.global_rank, trainer.world_size, self._new_place)
        if place is None:
            return
        if trainer.world_size > 1:
            self.on_before_backward = self._among_ranks  # type: ignore[method-assign, assignment]
            self._others = LostRanks(place)
            self._others.on_fit_start(trainer)
        self._ending = OfScript(trainer, str(place), partial(self._give_up, trainer))
        skip_idle(self, trainer)
        self._before = contention.read()
        self._recorder = StepRecorder(place / "steps.csv", loggers=False, workers=self._workers)
        tracer = self._tracer(trainer, place) if trainer.is_global_zero else None
        self._parts = [part for part in (tracer, self._recorder) if part]

    def _new_place(self) -> Path:
        return new_directory(self.directory)

    def _make_way(self, trainer: Any) -> None:
        """Leave torch.profiler, of which a process can run one, to a script that uses it itself."""
        if keeps_its_profiler(trainer.profiler):
            self._parts = [part for part in self._parts if not isinstance(part, TraceProfiler)]

    def _each(self, trainer: Any, hook: str, *given: Any, **named: Any) -> None:
        for part in self._parts:
            getattr(part, hook)(trainer, *given, **named)

    def _listen(self, trainer: Any) -> None:
        # The results live as long as this fit's loop.
        self._listener = _Listener(trainer.fit_loop.epoch_loop._results, self._recorder)

    @outside.own_work()
    def _end(self, trainer: Any, hook: str, pl_module: Any, ended_by: Any) -> None:
        if not self._parts or self.place is None or self._before is None:
            return
        self._has_trained()  # where an error kept `on_train_end` from being called
        error = ended_by if isinstance(ended_by, BaseException) else None
        asked = self._ending and self._ending.number
        if error and self._others:
            self._others.on_exception(trainer, pl_module, error)
        if trainer.is_global_zero:
            make_room(self.place)
        self._each(trainer, hook, pl_module, ended_by)
        if trainer.is_global_zero:
            # Workers are asked to end, too, and end before the step does.
            if asked and error and (isinstance(error, SystemExit) or what_failed(self.place) is None):
                error = KeyboardInterrupt(asked)
            self._leave_record(trainer, error)
        elif isinstance(error, Exception) and not asked:
            note_failure(self.place, trainer.global_rank, error)
        self._let_go()

    def _give_up(self, trainer: Any, number: int) -> None:
        """Leave a record in another thread, as the training's one hangs."""
        if trainer.is_global_zero and self._parts:
            self._leave_record(trainer, KeyboardInterrupt(number))

    def _leave_record(self, trainer: Any, error: BaseException | None) -> None:
        self._parts = []
        assert self.place is not None
        assert self._before is not None
        machine = self._before, contention.read(self._before.thread)
        summary, config = self._known(trainer, status_of(error), error)
        complete(summary, config, self.place, machine=machine, steps=self._recorder.step_log, page=self.report)

    def _known(self, trainer: Any, status: str, error: BaseException | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """What can be told of the training so far, and what it is set to."""
        assert self.place is not None
        summary = summarise(trainer, self.place, status=status, error=error, metrics=_metrics(trainer))
        config = settings_of(trainer)
        about = {"script": command(), "settings": config, "startup_seconds": self._recorder.startup_seconds}
        return summary | about | what_is_trained(trainer), config

    def _keep(self, trainer: Any) -> None:
        """Keep what is known already, for a report where the process is killed."""
        if self.place is not None and trainer.is_global_zero:
            begin(self._known(trainer, "failed", None)[0], self.place)

    def _forget_workers(self) -> None:
        if self._workers is not None:
            self._workers.end()
            self._workers = None

    def _let_go(self) -> None:
        self._parts, self._others = [], None
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.close()
        vars(self).pop("on_before_backward", None)
        restore_idle(self)
        if self._listener is not None:
            self._listener.end()
            self._listener = None

    def _guarded(self, work: Callable[..., None], trainer: Any, *given: Any, **named: Any) -> None:
        """Work whose error ends the record, and no more than that."""
        try:
            work(trainer, *given, **named)
        except Exception as error:
            self._fail(trainer, error)

    def _fail(self, trainer: Any, error: Exception) -> None:
        if is_of_handler(error):  # such as torch's, of a loader worker that has died
            raise error
        for part in self._parts:
            with contextlib.suppress(Exception):
                part.on_exception(trainer, None, error)
        self._let_go()
        tell(error, self.place, trainer.global_rank)


class _Listener:
    """In the place of the ``log`` by which the loop keeps what a module logs; copies of its results have their own."""

    def __init__(self, results: Any, recorder: StepRecorder) -> None:
        self._results, self._log, self._recorder = results, results.log, recorder
        results.log = self

    def __call__(self, hook: str, *given: Any, batch_size: Any = None, **named: Any) -> Any:
        # Not a tensor, which may lie on a GPU, nor what is said of an epoch.
        if not is_compiling() and hook == "training_step" and isinstance(batch_size, Integral):
            self._recorder.batch_size = int(batch_size)
        return self._log(hook, *given, batch_size=batch_size, **named)

    def end(self) -> None:
        vars(self._results).pop("log", None)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._results, "log")


def _metrics(trainer: Any) -> dict[str, float]:
    """The latest figures that were logged, as they are: to ask the trainer for them may compute, on all ranks."""
    metrics = getattr(trainer._logger_connector, "_callback_metrics", {})
    return readable({name: value for name, value in metrics.items() if getattr(value, "numel", lambda: 1)() == 1})
