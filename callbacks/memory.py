"""Which operators take the memory of a training step; on a GPU also who holds each block.

CPU: torch.profiler, https://docs.pytorch.org/docs/stable/profiler.html. GPU: the allocator's history,
https://docs.pytorch.org/docs/stable/torch_cuda_memory.html.
"""

import logging
import os
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerAction

from .accelerators import activities
from .lightnings import Trainer
from .owners import state_before_fit
from .recording import Recording, warning_only
from .schedule import ACTIVE, Schedule
from .tables import OperatorTables

_log = logging.getLogger(__name__)
_memory: Any = torch.cuda.memory  # whose history and snapshots have no types
_MIB = 2**20
_HOW_TO_OPEN = """\
To look at {name}: drag it into https://pytorch.org/memory_viz, which shows it in the browser and uploads nothing.
With no internet, as text: python -m torch.cuda._memory_viz stats {name}
and every allocation in order: python -m torch.cuda._memory_viz trace {name}
(`trace_plot {name} -o page.html` writes a page that needs the internet for its viewer.)
"""


class MemoryProfiler(Recording):
    """Record allocations in a few training steps; write operator tables, and on CUDA a memory snapshot.

    After `wait` and `warmup`, `active` steps are recorded. Then, or when training ends or fails before, rank 0
    writes the tables of :class:`strobe.callbacks.tables.OperatorTables`, with `operators_by_memory.txt` and `.csv`,
    and each rank `memory.txt` (`memory_rank<r>.txt` with several): its peaks, and how to open a snapshot. On CUDA
    each rank also leaves `memory_snapshot_rank<r>.pickle`: the allocator's last `max_entries` events from the start
    of training to the last active step, and who made the blocks that are left. After an out-of-memory error it is
    called `memory_snapshot_oom_rank<r>.pickle`, at any step of training; after the active steps it lists
    blocks, but not who made them, so raise `wait` to reach the failing step.

    Steps are counted from 0 in each `fit`; see :class:`strobe.callbacks.recording.Recording` for what a step is, and
    :class:`strobe.callbacks.schedule.Schedule` for `wait` and `warmup`. The GPU's history is kept from the start.

    Args:
        directory: Where files go; made when they are written.
        active: Steps to record.
        max_entries: Most allocations and frees in a snapshot; a few kB each.

    Raises:
        ValueError: `active` or `max_entries` is less than 1, or another number is negative.
    """

    def __init__(
        self, directory: str | Path, *, wait: int = 1, warmup: int = 1, active: int = 3, max_entries: int = 100_000
    ) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries={max_entries} is too small; it must be at least 1")
        super().__init__(directory)
        self.schedule = Schedule(wait=wait, warmup=warmup, active=active)
        self.max_entries = max_entries
        self._profiler: torch.profiler.profile | None = None
        self._tables = OperatorTables()
        self._history = False
        self._steps = 0
        self._active_steps = 0
        self._rank = 0
        self._device = torch.device("cpu")

    def __getstate__(self) -> dict[str, Any]:
        """A copy is as newly made."""
        return state_before_fit(self, _profiler=None, _tables=OperatorTables(), _history=False)

    @property
    def recording(self) -> bool:
        """Whether allocations of the current step are recorded; changes at the end of a step."""
        profiling = self._profiler is not None and self._profiler.current_action is not ProfilerAction.NONE
        return profiling or self._history

    def on_train_start(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        """Begin step 0, before its batch is fetched."""
        super().on_train_start(trainer)
        self._rank, self._device = trainer.global_rank, trainer.strategy.root_device
        self._steps = self._active_steps = 0
        if self._device.type == "cuda":  # whose allocator alone keeps a history
            with warning_only("The history of the GPU's memory"):
                _memory._record_memory_history("all", max_entries=self.max_entries, stacks="python", clear_history=True)
                self._history = True
        elif self._device.type != "cpu":
            _log.info("%s keeps no history of its memory; only CUDA does", self._device)
        self._profiler = torch.profiler.profile(
            activities=activities(self._device),
            schedule=self.schedule.action,
            on_trace_ready=lambda profiler: self._tables.add(profiler.profiler, self._active_steps),
            profile_memory=True,
            record_shapes=True,
        )
        with warning_only("The memory profile"):
            self._profiler.start()

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """End the step; write the files if it was the last active one."""
        if self._profiler is None:
            return
        self._steps += 1
        self._active_steps += self._profiler.current_action in ACTIVE
        with warning_only("The memory profile"):
            self._profiler.step()
        if self._active_steps == self.schedule.active:
            self.finish(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write what was recorded, also on Ctrl-C and SIGTERM; if the GPU's memory ran out, also what is held now."""
        if isinstance(exception, torch.OutOfMemoryError):
            self._snapshot("memory_snapshot_oom")
            self.finish(trainer, None)
            self._write_report()
        else:
            self.finish(trainer)

    def on_train_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Write what was recorded if training ends before the last active step."""
        if self._profiler is not None and self._active_steps == 0:
            _log.warning("No memory profile: training ended after %d steps, before the first active one", self._steps)
        self.finish(trainer)

    def finish(self, trainer: Any, snapshot: str | None = "memory_snapshot") -> None:
        """Stop recording and write what there is; a second time does nothing."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        with warning_only("The memory profile"):
            profiler.stop()
        if snapshot is not None:
            self._snapshot(snapshot)
        if self._rank == 0:
            with warning_only("The operator tables"):
                self.place(*self._tables.write(self.directory))
        self._tables = OperatorTables()  # frees the events
        self._write_report()

    def _snapshot(self, name: str) -> None:
        """Write what the GPU's allocator knows, and stop its recording."""
        if self._device.type != "cuda":
            return
        name = f"{name}_rank{self._rank}.pickle"
        with warning_only(name), self.drafts() as folder:
            _memory._dump_snapshot(str(folder / name))
            self.place(folder / name)
            _log.info("%s: open it at https://pytorch.org/memory_viz; memory.txt says how to do it offline", name)
        if self._history:
            self._history = False
            with warning_only("The history of the GPU's memory"):
                _memory._record_memory_history(None)

    def _write_report(self) -> None:
        with warning_only("memory.txt"), self.drafts() as folder:
            draft = folder / f"memory{self.suffix}.txt"
            draft.write_text(self._report(), encoding="utf-8")
            self.place(draft)

    def _report(self) -> str:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        lines = [
            f"Memory of rank {self._rank} (process {os.getpid()}) until training step {self._steps}\n",
            f"Peak resident memory: {peak / _MIB:,.1f} MiB ({peak} bytes); loader workers have their own\n",
        ]
        if self._device.type == "cuda":
            for what, read in (("allocated", "max_memory_allocated"), ("reserved", "max_memory_reserved")):
                peak = getattr(torch.cuda, read)(self._device)
                lines.append(f"Peak {what} on {self._device}: {peak / _MIB:,.1f} MiB ({peak} bytes)\n")
            lines += [
                "\n" + _HOW_TO_OPEN.format(name=name)
                for name in sorted(path.name for path in self.files if path.suffix == ".pickle")
            ]
        return "".join(lines)
