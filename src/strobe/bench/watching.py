"""Trainings that are watched and not watched by turns, and the times of both."""

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.callbacks import Callback

from strobe.callbacks import TraceProfiler


@dataclass
class Times:
    """Seconds of steps, and bytes, of one training."""

    unwatched: list[float] = field(default_factory=list)
    watched: list[float] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)  # at the ends of cycles
    step_bytes: float = 0


class Timed(TraceProfiler):
    """Notes how long steps take, and its own work at their ends."""

    def on_train_start(self, *arguments: Any) -> None:
        """Begin."""
        super().on_train_start(*arguments)
        self.times = Times()
        self._step = 0
        self._since = time.perf_counter()

    def on_train_batch_end(self, *arguments: Any) -> None:
        """A step ends before this callback's own work, and the next begins after it."""
        now, cycle, first = time.perf_counter(), self.cycle, self._step < self.schedule.skip_first
        if self._tracer is not None and self._tracer.active:
            self.times.watched.append(now - self._since)
        elif not self.recording and not first:
            self.times.unwatched.append(now - self._since)
        super().on_train_batch_end(*arguments)
        self._step += 1
        self._since = time.perf_counter()
        if self.cycle > cycle:
            self.times.stalls.append(self._since - now)


class Switched(Callback):
    """Takes another callback out of the trainer and puts it back, in blocks of steps, and times the blocks."""

    block = 40

    def __init__(self, other: Callback) -> None:
        self.other = other
        self._since = 0.0
        self.seconds: dict[bool, list[float]] = {True: [], False: []}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """At a block's end the next kind of block begins."""
        if batch_idx % self.block == self.block - 1:
            now, present = time.perf_counter(), self.other in trainer.callbacks
            if batch_idx > 2 * self.block:
                self.seconds[present].append((now - self._since) / self.block)
            others = [callback for callback in trainer.callbacks if callback is not self.other]
            trainer.callbacks = others if present else [*others, self.other]
            self._since = time.perf_counter()

    def on_train_start(self, *_: Any) -> None:
        """Begin."""
        self._since = time.perf_counter()


class Blocks(Callback):
    """Times blocks of steps, after a first one: seconds a step."""

    block = 40

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._since = 0.0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """At a block's end the next one begins."""
        if batch_idx % self.block == self.block - 1:
            now = time.perf_counter()
            if batch_idx > self.block:
                self.seconds.append((now - self._since) / self.block)
            self._since = now


class Tiny(LightningModule):
    """So little work that a callback's microseconds show."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """A loss."""
        return torch.as_tensor(self.layer(batch[0]).sum())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The cheapest."""
        return torch.optim.SGD(self.parameters(), lr=0.01)
