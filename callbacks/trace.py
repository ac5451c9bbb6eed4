"""Profile training with torch.profiler and leave traces that TensorBoard and Perfetto open.

Schedule and options: https://docs.pytorch.org/docs/stable/profiler.html. File names follow
torch-tb-profiler 0.4.3, which takes `<worker>.<ns>.pt.trace.json.gz` (its `consts.WORKER_PATTERN`).
"""

import gzip
import json
import logging
import os
import shutil
import socket
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch.profiler import ProfilerAction, ProfilerActivity

_log = logging.getLogger(__name__)
_ACTIVE = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class TraceProfiler(Callback):
    """Profile training in cycles of wait, warmup and active steps; write one trace a cycle and rank.

    A step is a training batch, counted from 0 in each `fit`. It reaches from the end of this callback's
    `on_train_batch_end` to the next: fetch, transfer, forward, backward, update and callbacks. What Lightning
    does between batches (validation, the end of an epoch) belongs to the step that follows. List this
    callback last, so that the work of the others stays in the step it is for.

    A finished cycle leaves `<host>_<pid>_rank<r>.<ns>.pt.trace.json.gz`. A run that ends inside one, by an
    error too, leaves `<host>_<pid>_rank<r>_partial.<ns>.pt.trace.json.gz` with the active steps it reached;
    after an error the last of them is the one that failed. Files appear whole or not at all. A trace that
    cannot be written is logged as a warning and never ends the run.

    Args:
        directory: Where traces go; made when training starts. TensorBoard wants them beside its event files.
        skip_first: Steps to skip before the first cycle.
        skip_first_wait: Any other value than 0 leaves out the first cycle's `wait`.
        wait: Steps at the start of a cycle that are not profiled.
        warmup: Steps that are profiled and thrown away, as the first ones pay for starting the profiler.
        active: Steps recorded in each cycle.
        repeat: Cycles to record, or 0 to go on until training ends.
        record_shapes: Record the shapes of operator inputs.
        profile_memory: Record every allocation.
        with_stack: Record Python stacks; may corrupt ranges (pytorch issue 174555).
        with_flops: Estimate the operations of matrix products and convolutions.

    Attributes:
        traces: Files written, oldest first.
        steps_profiled: Active steps recorded to their end.
        cycle: Number of the current cycle in this `fit`, from 0; it grows when a cycle's trace is due.

    Raises:
        ValueError: `active` is less than 1, or another number is negative.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
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
    ) -> None:
        # Kept as plain values: a schedule is a closure, which strategies that spawn could not pickle.
        self._schedule = {
            "skip_first": skip_first,
            "skip_first_wait": skip_first_wait,
            "wait": wait,
            "warmup": warmup,
            "active": active,
            "repeat": repeat,
        }
        for name, value in self._schedule.items():
            if value < (least := int(name == "active")):
                raise ValueError(f"{name}={value} is too small; it must be at least {least}")
        self._options: dict[str, Any] = {
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
        }
        self.directory = Path(directory)
        self.traces: list[Path] = []
        self.steps_profiled = 0
        self.cycle = 0
        self._worker = ""
        self._profiler: torch.profiler.profile | None = None
        self._steps_in_cycle = 0

    @property
    def recording(self) -> bool:
        """Whether the current step is a warmup or an active one.

        Changes at the end of a step, which pays for starting the profiler or for writing the trace: a clock
        read after this callback's `on_train_batch_end` sees a disturbed step as `recording` before or after.
        """
        return self._profiler is not None and self._profiler.current_action is not ProfilerAction.NONE

    def setup(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Move behind the checkpoints, which Lightning puts last: their work belongs to the step it is for."""
        place = trainer.callbacks.index(self)
        others = [callback for callback in trainer.callbacks if callback is not self]
        after = [n for n, callback in enumerate(others, start=1) if isinstance(callback, Checkpoint)]
        place = max([place, *after])
        trainer.callbacks = [*others[:place], self, *others[place:]]

    def on_train_start(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        """Begin step 0, before its batch is fetched.

        Raises:
            OSError: The directory cannot be made.
        """
        activities = [ProfilerActivity.CPU]
        if trainer.strategy.root_device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._worker = f"{socket.gethostname()}_{os.getpid()}_rank{trainer.global_rank}"
        self.cycle = 0
        self._steps_in_cycle = 0
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(**self._schedule),
            on_trace_ready=self._write,
            **self._options,
        )
        self._profiler.start()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """End the step, write the trace of a finished cycle and begin the next step."""
        if self._profiler is None:
            return
        if self._profiler.current_action in _ACTIVE:
            self._steps_in_cycle += 1
            self.steps_profiled += 1
        self._profiler.step()
        if 0 < self._schedule["repeat"] <= self.cycle:
            self._stop(failed=False)

    def on_exception(self, *_: Any, **__: Any) -> None:
        """Write what was recorded, also on Ctrl-C and SIGTERM."""
        self._stop(failed=True)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Write what was recorded in a cycle that did not finish."""
        self._stop(failed=False)

    def teardown(self, *_: Any, **__: Any) -> None:
        """Stop the profiler if nothing else has."""
        self._stop(failed=False)

    def _stop(self, *, failed: bool) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        if not failed:
            # The last batch's end opened one more step, and no batch came to fill it.
            empty_step = f"ProfilerStep#{profiler.step_num}"
            profiler.on_trace_ready = partial(self._write, drop=empty_step) if self._steps_in_cycle else None
        try:
            profiler.stop()
        except Exception:  # must not hide the error that ended the run
            _log.warning("The profiler did not stop cleanly; the last trace may be missing", exc_info=True)

    def _write(self, profiler: torch.profiler.profile, drop: str | None = None) -> None:
        whole = self._steps_in_cycle == self._schedule["active"]
        worker = self._worker if whole else f"{self._worker}_partial"
        path = self.directory / f"{worker}.{time.time_ns()}.pt.trace.json.gz"
        try:
            _export(profiler, path, drop)
        except OSError as error:
            _log.warning("No trace could be written to %s (%s); is there space?", path, error.strerror)
        else:
            self.traces.append(path)
        # Frees the events, and spares the warning that the next cycle would clear them. `acc_events=True`
        # spares it too, but parses and keeps every event of every cycle.
        profiler.profiler = None
        self.cycle += 1
        self._steps_in_cycle = 0


def _export(profiler: torch.profiler.profile, path: Path, drop: str | None) -> None:
    """Write the trace to `path` in one move, without the events called `drop`."""
    with TemporaryDirectory(prefix=".trace-", dir=path.parent) as scratch:
        plain, packed = Path(scratch, "trace.json"), Path(scratch, "trace.json.gz")
        profiler.export_chrome_trace(str(plain))
        if drop is not None:
            trace = json.loads(plain.read_bytes())
            trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("name") != drop]
            plain.write_text(json.dumps(trace))
        # Level 6 stalls training for a fifth of the default 9's time and costs a sixth more bytes.
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)
        packed.replace(path)
