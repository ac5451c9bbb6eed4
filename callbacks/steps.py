"""One row a training step: how long it took, and where the time went; and what a person sees meanwhile."""

import csv
import logging
import multiprocessing
import resource
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .columns import AFTER, COLUMNS, CPU, DEVICE, EXPOSED, GAPS, MAIN, OWNED, RANKS
from .device_clock import DeviceClock
from .lightnings import Callback, LightningModule, RichProgressBar, Trainer
from .owners import checkpoint_names, metrics_of, owners, owners_between
from .phases import Lap, PhaseClock
from .threads import ThreadsBeside
from .waits import Waits

FLUSH_SECONDS = 5  # at most so much is lost when the process is killed
ASKED_SECONDS, ASKED_SHARE = 0.5, 1 / 32  # between two looks at memory: at least, and of the time since the start
PAGE = resource.getpagesize()
LIVE_STEPS = 20  # over which the latest rate is taken
_log = logging.getLogger(__name__)


def rows_of(path: Path, rank: int) -> Path:
    """Where a rank writes its rows, where rank 0 writes to this path."""
    return path if rank == 0 else path.parent / "ranks" / f"{rank}.csv"


@dataclass
class Row:
    """A step that is not written yet: what follows it is not known, or its device is not done."""

    head: Sequence[Any]  # from `step` to the memory
    lap: Lap
    among: Sequence[float | None] = ()  # ``RANKS``
    gaps: dict[str, float] = field(default_factory=lambda: dict.fromkeys(GAPS, 0.0))
    device: Mapping[str, float] | None = None
    after: dict[str, float] = field(default_factory=dict)  # seconds of each owner of hooks, of those in the gaps


class StepRows:
    """Writes ``COLUMNS``, with a `device` its seconds, and each owner's of hooks, in steps and `between` them.

    Of several ranks also ``RANKS``.
    """

    def __init__(
        self, path: Path, owners: Sequence[str], *, between: Sequence[str] = (), device: bool, ranks: bool = False
    ) -> None:
        self._owners, self._between = owners, between
        self._device = (*DEVICE, EXPOSED) if device and ranks else DEVICE if device else ()
        self._waiting: deque[Row] = deque()
        self._file = path.open("w", newline="", buffering=1 << 16)
        self._csv = csv.writer(self._file)
        names = [*RANKS * ranks, *(f"device_{name}" for name in self._device)]
        self._csv.writerow(
            [*COLUMNS, *names, *(OWNED + owner for owner in owners), *(AFTER + owner for owner in between)]
        )
        self._file.flush()
        self._flushed = time.monotonic()

    def add(self, head: Sequence[Any], lap: Lap, among: Sequence[float | None] = ()) -> None:
        """A step has ended: those before it are followed by nothing more."""
        self._waiting.append(Row(head, lap, among))

    def follow(self, gaps: Mapping[str, float], lap: Lap | None = None) -> None:
        """Seconds between the latest step and the next one, in addition to those told already; whose they were."""
        if self._waiting:
            row = self._waiting[-1]
            row.gaps = {name: row.gaps[name] + gaps.get(name, 0.0) for name in GAPS}
            for name in self._between:
                row.after[name] = row.after.get(name, 0.0) + (lap.owned(name) if lap else 0.0)

    def tell(self, device: Iterable[Mapping[str, float]]) -> None:
        """The device's seconds of the next steps of which they were not known."""
        unknown = [row for row in self._waiting if row.device is None]
        for row, seconds in zip(unknown, device, strict=False):
            row.device = seconds

    def write(self, *, last: bool = False) -> None:
        """Write the rows about which all is known; at the `last` moment all."""
        while self._waiting:
            row = self._waiting[0]
            if not last and (len(self._waiting) == 1 or (self._device and row.device is None)):
                break
            self._waiting.popleft()
            phases = row.lap.phases
            cpu, main = (row.lap.cpu or dict.fromkeys(CPU)).values(), (row.lap.main or dict.fromkeys(MAIN)).values()
            values: list[float | None] = [sum(phases.values()), *phases.values(), *row.gaps.values(), *cpu, *main]
            values += [row.lap.collecting, *row.among]
            values += [row.device.get(name) if row.device else None for name in self._device]
            values += [row.lap.owned(owner) for owner in self._owners]
            values += [row.after.get(owner, 0.0) for owner in self._between]
            told = (f"{value:.7f}" if value and not isinstance(value, int) else value for value in values)
            self._csv.writerow([*row.head, *told])
        if (now := time.monotonic()) - self._flushed > FLUSH_SECONDS:
            self._file.flush()
            self._flushed = now

    def close(self) -> None:
        """Write what is left."""
        with self._file:
            self.write(last=True)


class MemoryWatch:
    """What processes hold of memory that is no file's and not shared, asked twice a second and later more seldom."""

    def __init__(self) -> None:
        self._began = self._next = time.monotonic()

    def held(self) -> tuple[int | None, int | None]:
        """Bytes of this process, and of the largest that it started, such as loader workers; None where not asked."""
        now = time.monotonic()
        if now < self._next:
            return None, None
        self._next = now + max(ASKED_SECONDS, ASKED_SHARE * (now - self._began))
        children = [held for child in multiprocessing.active_children() if (held := _held(child.pid)) is not None]
        return _held("self"), max(children, default=None)


def _held(pid: int | str | None) -> int | None:
    """Pages of a process less those that it shares (proc(5), statm), in bytes; None where it has gone."""
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return None
    return (int(resident) - int(shared)) * PAGE


class StepRecorder(Callback):
    """Write a CSV file with one row a training step, in seconds.

    The columns are ``COLUMNS``; on a GPU ``device_<phase>``, what it did for each phase by CUDA events; and
    ``callbacks/<name>`` for each callback, logger or module with hooks in a step. A step reaches from the end of the
    batch before to the end of its own last callback; the first of an epoch, or after a validation, begins when that
    has ended. What lies between steps is in the row of the step before: ``validation``, ``checkpoints`` that are
    written there, and the rest, of which ``after/<name>`` is a callback's or the module's. ``cpu_<phase>`` and
    ``main_<phase>``, in one row of seven, are core-seconds of this process and of the thread that trains;
    ``garbage_collection`` is Python's, within the phases; ``memory`` and ``workers_memory``, in a row now and then, are
    bytes that this process, and its largest child, hold.
    ``images`` are those on all ranks, by the first dimension of the batch's first tensor; empty where it has none.
    ``updates`` counts the optimizers' steps, of which an accumulating step has none. ``profiled`` is 1 while a profiler
    disturbed the step. Of several ranks each writes: those other than 0 into ``ranks/<rank>.csv`` beside it, all with
    ``RANKS``: seconds in which this rank waits for the others (empty for a backward pass that Lightning does not
    know of), how many elements the batch's tensors have, and the Unix time at which the step began. Every
    `trainer.log_every_n_steps` steps the logger gets the phases of an undisturbed step, as ``step_seconds/<phase>``, unless ``loggers`` is False.
    """

    def __init__(self, path: str | Path, *, loggers: bool = True) -> None:
        self.path, self.loggers = Path(path), loggers
        self.batch_size: int | None = None  # of the current step, where somebody knows better than its tensors
        self._clock: PhaseClock | None = None
        self._rows: StepRows | None = None
        self._waits: Waits | None = None
        self._recent: deque[tuple[int, float, float]] = deque(maxlen=LIVE_STEPS)
        self.threads = ThreadsBeside()

    def setup(self, trainer: Any, pl_module: LightningModule, stage: str) -> None:
        """Become the last callback, behind the checkpoints, so that a step ends after all others."""
        others = [callback for callback in trainer.callbacks if callback is not self]
        trainer.callbacks = [*others, self]

    def on_fit_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Open the file and start the clock."""
        on_gpu, ranks = trainer.strategy.root_device.type == "cuda", trainer.world_size
        self._clock = PhaseClock(device=DeviceClock() if on_gpu else None)
        if ranks > 1:
            self._waits = Waits(self._clock)
            self._unix = time.time_ns() - time.perf_counter_ns()
            self.on_before_backward = self._before_backward  # type: ignore[method-assign]  # costs one process nothing
        self._clock.install(trainer)
        self._clock.watch_calls(trainer.loggers, "log_metrics", "save")
        self._clock.watch_calls(metrics_of(pl_module), "update", "compute")
        self._checkpoints = checkpoint_names(trainer)
        self._recent.clear()
        self._memory = MemoryWatch()
        self._validating = 0
        self._recording = False
        loggers = dict.fromkeys(type(logger).__name__ for logger in trainer.loggers)
        mine = {*self._checkpoints, type(self).__name__}
        between = [name for name in (*owners_between(trainer), *loggers) if name not in mine]
        path = rows_of(self.path, trainer.global_rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._rows = StepRows(path, [*owners(trainer), *loggers], between=between, device=on_gpu, ranks=ranks > 1)
        if self._waits is not None:
            self._waits.install()

    def on_train_start(self, *_: Any) -> None:
        """A step does not hold what went before; a run resumed within an epoch does not start that epoch again."""
        self.threads = ThreadsBeside()
        self._begin()

    def on_train_epoch_start(self, *_: Any) -> None:
        """Nor what happened between epochs."""
        self._begin(epoch=True)

    def on_validation_start(self, *_: Any) -> None:
        """Tell a validation from the rest, which comes before it."""
        self._begin()
        self._validating = time.perf_counter_ns()

    def on_validation_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Nor a validation in the middle of one."""
        if self._clock is not None and not trainer.sanity_checking:
            self._begin(validation=(time.perf_counter_ns() - self._validating) / 1e9)

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        """Note whether a profiler records this step."""
        self._recording = _recording(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any) -> None:
        """End the step."""
        if self._clock is None:
            return
        lap = self._clock.lap()
        self.threads.look()
        phases = lap.phases
        # A profiler that starts or stops does so at the end of a step, which that slows down too.
        profiled = self._recording or _recording(trainer)
        tensors = _tensors(batch)
        size, self.batch_size = self.batch_size or next((len(one) for one in tensors if one.ndim), None), None
        images = None if size is None else size * trainer.world_size
        step, total = trainer.fit_loop.epoch_loop.total_batch_idx, sum(phases.values())
        self._recent.append((images or 0, total, phases["data_wait"]))
        if self._rows is not None:
            head = [step, trainer.current_epoch, images, lap.updates, int(profiled), *self._memory.held()]
            self._rows.add(head, lap, self._among(lap, batch))
            self._rows.tell(self._clock.device.ready() if self._clock.device else ())
            self._rows.write()
        if self.loggers and not profiled and trainer.log_every_n_steps and (step + 1) % trainer.log_every_n_steps == 0:
            scalars = {f"step_seconds/{name}": value for name, value in (phases | {"total": total}).items()}
            for logger in trainer.loggers:
                logger.log_metrics(scalars, step=trainer.global_step)

    def _before_backward(self, trainer: Any, pl_module: LightningModule, loss: Any) -> None:
        """Time how long this rank waits for the others at the end of the pass."""
        if self._waits is not None:
            self._waits.watch(loss)

    def _among(self, lap: Lap, batch: Any) -> tuple[float | None, ...]:
        """``RANKS`` of a step; nothing for one process."""
        if self._waits is None:
            return ()
        waits, passes, self._waits.passes = lap.waits, self._waits.passes, 0
        exposed = sum(waits.values()) if passes or not lap.updates else None
        elements = sum(tensor.numel() for tensor in _tensors(batch))
        return exposed, *waits.values(), elements, (self._unix + lap.began) / 1e9

    def live(self) -> tuple[float, float] | None:
        """Images/s of the latest steps and what lies between them, and the share of that time that waited for data.

        None before the first step.
        """
        images, seconds, waited = (sum(step[column] for step in self._recent) for column in range(3))
        return (images / seconds, waited / seconds) if images else None

    def on_train_end(self, *_: Any) -> None:
        """The last step is followed by what ends its epoch."""
        self._begin()

    def _begin(self, validation: float = 0.0, *, epoch: bool = False) -> None:
        """Begin a step now; what passed since the last one ended is told in its row."""
        if self._clock is None:
            return
        lap = self._clock.restart(epoch=epoch)
        if self._recent:  # the rate that a person sees holds what lies between steps too
            images, seconds, waited = self._recent.pop()
            self._recent.append((images, seconds + sum(lap.phases.values()), waited))
        if self._rows is not None:
            checkpoints = sum(lap.owned(name) for name in self._checkpoints)
            validation -= min(checkpoints, validation)  # they are saved before it is said to have ended
            between = max(0.0, sum(lap.phases.values()) - validation - checkpoints)
            self._rows.follow(
                {"validation": validation, "checkpoints": checkpoints, "between": between}, None if validation else lap
            )

    def on_exception(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Keep what was measured."""
        clock, rows, waits = self._clock, self._rows, self._waits
        self._clock = self._rows = self._waits = None
        if clock is None:
            return
        if waits is not None:
            waits.remove()
            vars(self).pop("on_before_backward", None)
        try:
            if rows is not None:
                with suppress(RuntimeError):  # the error of a device, which ended the run, whenever it is asked
                    rows.tell(clock.device.finish() if clock.device else ())
                rows.close()
        finally:
            clock.remove(trainer)

    teardown = on_exception


class ProgressBar(RichProgressBar):
    """Shows ``images/s`` and ``waiting``, the share of time that waits for data, in the latest steps and between them.

    A `strobe.callbacks.StepRecorder` beside it measures them.
    """

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """What the bar shows behind its numbers."""
        shown: dict[str, Any] = super().get_metrics(trainer, pl_module)
        recorders = [callback for callback in trainer.callbacks if isinstance(callback, StepRecorder)]  # type: ignore[attr-defined]
        if recorders and (live := recorders[0].live()):
            shown |= {"images/s": f"{live[0]:,.0f}", "waiting": f"{live[1]:.0%}"}
        return shown


class Journal(Callback):
    """Logs the metrics of each epoch, and those of the test."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what is known after an epoch."""
        _log_metrics(trainer, f"epoch {trainer.current_epoch}, step {trainer.global_step}")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what the test found."""
        _log_metrics(trainer, "test")


def _log_metrics(trainer: Trainer, what: str) -> None:
    metrics = trainer.callback_metrics  # reading them reduces over all ranks: each must
    if trainer.is_global_zero:
        values = ", ".join(f"{name} {float(value):.4f}" for name, value in sorted(metrics.items()))
        _log.info("%s: %s", what, values)


def _tensors(batch: Any) -> Iterator[Tensor]:
    """The tensors of a batch, however it is nested."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from _tensors(part)
    elif isinstance(batch, list | tuple):
        for part in batch:
            yield from _tensors(part)
    elif is_dataclass(batch):
        for one in fields(batch):
            yield from _tensors(getattr(batch, one.name, None))


def _recording(trainer: Any) -> bool:
    return any(getattr(callback, "recording", False) is True for callback in trainer.callbacks)
