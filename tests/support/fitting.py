"""A small model and its training, for the tests of the callbacks."""

import resource
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.profiler import record_function
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

SAMPLES = TensorDataset(torch.randn(24, 4))  # six batches
SOME_VALIDATION = {"val_check_interval": 2, "limit_val_batches": 2, "num_sanity_val_steps": 2}


class Stream(IterableDataset[Any]):
    """The samples without a length: Lightning prefetches, and learns of an epoch's end by running dry."""

    def __iter__(self) -> Iterator[Any]:
        return iter(SAMPLES)


class Model(LightningModule):
    """A linear layer that marks its batches in a trace as `batch <n>`, counted over the whole run."""

    def __init__(self, fail_at: int = -1, error: type[BaseException] = ArithmeticError) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.batches = 0
        self.fail_at, self.error = fail_at, error

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        with record_function(f"batch {self.batches}"):
            if self.batches == self.fail_at:
                raise self.error("the run's own")
            self.batches += 1
            return self.layer(batch[0]).sum()

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.layer(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Standstill:
    """A clock that only naps move on: what is charged to whom is exact, however busy the machine is."""

    def __init__(self) -> None:
        self.now = 0

    def perf_counter_ns(self) -> int:
        return self.now

    def thread_time_ns(self) -> int:
        return 0  # naps cost no core

    def getrusage(self, _: int) -> resource.struct_rusage:
        return resource.struct_rusage([0] * 16)

    def monotonic(self) -> float:
        return self.now / 1e9

    def nap(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


@pytest.fixture
def standstill(monkeypatch: pytest.MonkeyPatch) -> Standstill:
    """The clock by which steps and their phases are measured."""
    clock = Standstill()
    for module in ("clock", "rows", "steps"):
        monkeypatch.setattr(f"strobe.callbacks.{module}.time", clock)
    monkeypatch.setattr("strobe.callbacks.clock.resource.getrusage", clock.getrusage)
    return clock


def break_profiler_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.profiler raises when it has stopped."""
    stop = torch.profiler.profile.stop

    def broken(self: torch.profiler.profile) -> None:
        stop(self)
        raise RuntimeError("the profiler's own")

    monkeypatch.setattr(torch.profiler.profile, "stop", broken)


def trainer_with(*callbacks: Callback, **settings: Any) -> Trainer:
    """A quiet trainer for one epoch without validation, unless `settings` say otherwise."""
    quiet = ("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger")
    usual = dict.fromkeys(quiet, False) | {"max_epochs": 1, "limit_val_batches": 0, "num_sanity_val_steps": 0}
    return Trainer(callbacks=list(callbacks), **{"accelerator": "cpu"} | usual | settings)


def fit(
    *callbacks: Callback,
    model: LightningModule | None = None,
    data: Any = SAMPLES,
    ckpt_path: Path | None = None,
    **settings: Any,
) -> Trainer:
    """Train on batches of four; the trainer that did."""
    trainer = trainer_with(*callbacks, **settings)
    trainer.fit(
        model or Model(), DataLoader(data, batch_size=4), DataLoader(SAMPLES, batch_size=4), ckpt_path=ckpt_path
    )
    return trainer


@contextmanager
def never_waiting() -> Iterator[None]:
    """Operations that wait for the GPU raise."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
