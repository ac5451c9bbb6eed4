"""torch.profiler over numbered steps: records within a budget of size, and writes traces."""

import gc
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerAction, ProfilerActivity

from .accelerators import activities
from .loading import Loading
from .ranges import Interval, Ranges, Step
from .schedule import ACTIVE, Schedule
from .tables import OperatorTables
from .trace_writer import TraceWriter

CUPTI = "TEARDOWN_CUPTI"  # the variable that torch reads where a recording ends
_recorded = False  # whether there has been a Tracer of a GPU in this process


@contextmanager
def detaching_cupti() -> Iterator[None]:
    """Let torch detach CUPTI, CUDA's profiler, if it ends a recording: else later steps take longer (pytorch #144455).

    Only for the first recording of a process, if its Tracer makes no other: the next one, which may be the user's, may
    come before CUPTI is detached (kineto #1554). Before CUDA 12.6 this breaks CUDA graphs; torch forbids it for those
    of torch.compile. A user's own choice stays.
    """
    numbers = (torch.version.cuda or "0").split(".")
    unset = CUPTI not in os.environ and tuple(map(int, numbers[:2])) >= (12, 6)
    if unset:
        os.environ[CUPTI] = "1"
    try:
        yield
    finally:
        if unset and os.environ.get(CUPTI) == "1":  # or torch has forbidden it
            del os.environ[CUPTI]


@dataclass
class Tracer:
    """One training's profiler, from its first step on."""

    schedule: Schedule  # counts from the first step
    options: dict[str, Any]  # of torch.profiler, such as `record_shapes`
    activities: Iterable[ProfilerActivity]
    first: int  # the first step's number
    writer: TraceWriter  # its budget may leave out steps and options
    loading: Loading
    operators: OperatorTables | None  # to which what was recorded is added, if it is wanted

    def __post_init__(self) -> None:
        self.steps: list[Step] = []  # the active steps recorded to their end, with their phases
        self.cycle = 0  # it grows when a cycle's trace is due
        self.last_cycle: list[Step] = []  # the steps of the last trace, with one that failed
        self._cycle_steps: list[Step] = []
        global _recorded  # noqa: PLW0603  # a process has one CUPTI
        of_gpu = ProfilerActivity.CUDA in self.activities
        once = self.schedule.repeat == 1 and not self.writer.budget.wants_probe
        self._ending = detaching_cupti if of_gpu and once and not _recorded else nullcontext
        _recorded |= of_gpu
        self._profiler: Any = torch.profiler.profile(  # its attributes are meant to be read, not typed to be set
            activities=self.activities,
            schedule=self._action,
            on_trace_ready=self._write,
            acc_events=True,  # nothing accumulates, see `_write`: else torch 2.11 warns that each cycle clears events
            **self.options,
        )
        self._profiler.step_num = self.first
        self._profiler.start()
        self.loading.watch(self.schedule, 0)
        self.begin()

    @property
    def recording(self) -> bool:
        """Whether the current step is a warmup or an active one."""
        return self._profiler.current_action is not ProfilerAction.NONE

    @property
    def done(self) -> bool:
        """Whether the last cycle is over, by the schedule, which is the same on all ranks, whatever their budgets."""
        return self.schedule.is_over(self._profiler.step_num - self.first)

    def shorten(self, schedule: Schedule) -> None:
        """Use another schedule; only before anything is recorded."""
        self.schedule = schedule
        self.writer.budget.active = self.writer.budget.wanted = schedule.active

    def begin(self) -> None:
        """Begin the current step now, not at the end of the last one."""
        self._probing = self._probes(self._profiler.step_num - self.first)
        self._began = time.monotonic_ns()

    def step(self, phases: tuple[Interval, ...]) -> None:
        """End the step, write the trace of a finished cycle, and begin the next step."""
        if not self.recording and self._action(self._profiler.step_num + 1) is ProfilerAction.NONE:
            self._profiler.step_num += 1  # as its `step` would, which takes time for a range that nobody sees
        else:
            self._end_step(phases)
            self.steps += self._cycle_steps[-1:] if self.active else []
            with self._ending():
                self._profiler.step()
        self.loading.watch(self.schedule, self._profiler.step_num - self.first)
        self.begin()

    def stop(self, phases: tuple[Interval, ...], *, failed: bool) -> None:
        """Write what was recorded of a cycle that did not finish, with the current step if that has `failed`.

        The last batch's end opened one more step; it is left out if no batch was asked for.
        """
        begun = failed and any(phase.name == "data_wait" for phase in phases)
        if begun:
            self._end_step(phases)
        drop = None if begun else f"ProfilerStep#{self._profiler.step_num}"
        self._profiler.on_trace_ready = partial(self._write, whole=False, drop=drop) if self._cycle_steps else None
        with self._ending():
            self._profiler.stop()

    def abandon(self) -> None:
        """Stop without writing, whatever state an error left.

        `stop` would begin the recording for which a warmup has prepared. Where an error came before it had, torch 2.11
        crashes.
        """
        with suppress(Exception):
            self._profiler.on_trace_ready = None
            recorder = self._profiler.profiler
            if recorder is not None and recorder.entered and recorder.kineto_results is None:
                self._profiler.stop()

    @property
    def active(self) -> bool:
        """Whether the current step is recorded and kept."""
        return self._profiler.current_action in ACTIVE and not self._probing

    def _end_step(self, phases: tuple[Interval, ...]) -> None:
        if self.active:
            self._cycle_steps.append(Step(self._profiler.step_num, self._began, time.monotonic_ns(), phases))

    def _action(self, number: int) -> ProfilerAction:
        """The schedule in the form that torch.profiler calls."""
        step = max(0, number - self.first)
        if self._probes(step):
            return ProfilerAction.RECORD_AND_SAVE
        return self.schedule.action(step, self.writer.budget.active)

    def _probes(self, step: int) -> bool:
        """Whether a step, the last of a warmup, is recorded only to see how large it is."""
        last = self.schedule.action(step) is ProfilerAction.WARMUP and self.schedule.action(step + 1) in ACTIVE
        return last and self.writer.budget.wants_probe

    def _write(self, profiler: Any, *, whole: bool = True, drop: str | None = None) -> None:
        if self._probing:
            for name, value in self.writer.budget.learn(self.writer.weigh(profiler), self.options).items():
                setattr(profiler, name, value)
            profiler.current_action = self._action(profiler.step_num)  # asked for before this was known
        elif self._cycle_steps:  # empty: the device stopped recording before the first
            whole = whole and len(self._cycle_steps) == self.writer.budget.active
            self.writer.write(profiler, self._cycle_steps, self.loading, whole=whole, drop=drop)
            if self.operators is not None:
                self.operators.add(profiler.profiler, len(self._cycle_steps))
            self.cycle += 1
            self.last_cycle, self._cycle_steps = self._cycle_steps, []
        # Frees the events: the next cycle begins with none.
        profiler.profiler = None


class Tracing:
    """One training's tracer, while there is one, with the ranges of its steps and what its loaders do."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges, self.loading = ranges, Loading()
        self.tracer: Tracer | None = None

    @property
    def recording(self) -> bool:
        """Whether the current step is a warmup or an active one, which a profiler disturbs."""
        return self.tracer is not None and self.tracer.recording

    @property
    def active(self) -> bool:
        """Whether the current step is recorded and kept."""
        return self.tracer is not None and self.tracer.active

    def start(
        self,
        schedule: Schedule,
        options: dict[str, Any],
        device: torch.device,
        loaders: Any,
        *,
        writer: TraceWriter,
        first: int = 0,
        tables: bool = True,
    ) -> None:
        """Begin with the first step, which has this number; see `TraceProfiler` for the others."""
        self.loading.look_ahead(loaders)
        self.tracer = Tracer(
            schedule,
            options,
            activities(device),
            first=first,
            writer=writer,
            loading=self.loading,
            operators=OperatorTables() if tables else None,
        )

    def begin(self) -> None:
        """A step begins now."""
        if self.tracer is not None:
            self.ranges.boundary()
            self.tracer.begin()

    def fetched(self, epoch: int, batch: int) -> None:
        """Training has this batch."""
        if self.loading.on:
            self.loading.fetched(epoch, batch, self.ranges.last_end("data_wait"))

    def stop(self, phases: tuple[Interval, ...], *, failed: bool) -> None:
        """Write what was recorded of a cycle that did not finish, with these phases of a step that has `failed`."""
        tracer, self.tracer = self.tracer, None
        if tracer is not None:
            tracer.stop(phases, failed=failed)
            self.loading.switch(False)

    def abandon(self) -> None:
        """Stop, whatever state an error left, and write nothing."""
        tracer, self.tracer = self.tracer, None
        if tracer is not None:
            tracer.abandon()
        self.loading.switch(False)


def profilers() -> list[Any]:
    """The torch.profilers of this process that record, or may later on."""
    if _living():
        gc.collect()  # one that nobody uses any more refers to itself
    return _living()


def _living() -> list[Any]:
    # Those that refer to their class are found ten times as fast as among all objects.
    kinds: tuple[type, ...] = (torch.profiler.profile, *torch.profiler.profile.__subclasses__())
    return [one for one in gc.get_referrers(*kinds) if issubclass(type(one), kinds)]
