"""What the cells of ``suite=profiling`` do: the same steps watched and not watched in turns, in one process."""

import importlib
import json
import os
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.profilers import Profiler, SimpleProfiler
from omegaconf import DictConfig
from torch.utils.data import DataLoader, TensorDataset

from strobe.app.build.instantiate import build
from strobe.app.config.compose import configure
from strobe.app.run.train import quieten
from strobe.attach.callback import Strobe
from strobe.bench.harness.declare import Done, Trial, Work
from strobe.bench.steady import fit
from strobe.bench.suites.profiling.suite import TRACEML, TWO_RANKS
from strobe.callbacks import PythonProfiler, StepRecorder, TraceProfiler
from strobe.callbacks.spans import SpanFolder, span
from strobe.measure.timing import Meter, mirrored
from strobe.probe.model import Stepping
from strobe.records.step_table import read_table

CYCLE: dict[str, Any] = {"skip_first": 2, "wait": 3, "warmup": 1, "active": 3, "repeat": 2}
STEPS = 2 + 2 * 7  # first steps that pay for allocation, and two cycles
FIRST = 4  # steps beside a Python profile that are not counted
TINY = 2.0  # seconds of a training that does next to nothing; looks at its stack begin after half a second
NEVER = 10**9  # steps
RANKS_FILE = "seconds.json"  # that the ranks leave
RANK_STEPS, RANK_FIRST = 1500, 300  # of each of their trainings; of these, some that are not timed
QUIET: dict[str, Any] = dict.fromkeys(
    ("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger"), False
)


def by_turns(one: Callable[[bool], Done], numbers: Iterator[int]) -> Done:
    """A watched step, with what it costs more than one that is not watched; both in another order each time."""
    steps = {watched: one(watched) for watched in mirrored((False, True), next(numbers))}
    return beside(steps[True].images, steps[True].seconds or 0, steps[False].seconds or 0, steps[True].figures)


def beside(images: int, watched: float, unwatched: float, more: Mapping[str, float]) -> Done:
    """The figures that each cell has: ``unwatched`` seconds, how many ``times`` as long it takes, and its ``cost``."""
    own = {"unwatched": unwatched, "times": watched / unwatched, "cost": watched - unwatched}
    return Done(images, watched, own | dict(more))


@contextmanager
def callbacks(trial: Trial, *, kind: str) -> Iterator[Work]:
    """Steps that do next to nothing, with a callback and without it."""
    quieten()
    if kind == TWO_RANKS:
        yield Work(lambda: of_two_ranks(trial.scratch), once=True)
        return
    made: Callable[[Path], Callback | Profiler] = {
        "phase timers": lambda folder: StepRecorder(folder / "steps.csv"),
        "trace that waits": lambda folder: TraceProfiler(folder, skip_first=NEVER),
        "Strobe": lambda folder: Attached(folder / "record"),
        "SimpleProfiler": lambda _: SimpleProfiler(),
        "TraceML": lambda _: importlib.import_module(f"{TRACEML}.integrations.lightning").TraceMLCallback(),
    }[kind]
    numbers = count()

    def one(watched: bool) -> Done:
        return Done(1, tiny_step(*([made(trial.scratch)] if watched else [])))

    yield Work(lambda: by_turns(one, numbers))


def of_two_ranks(folder: Path) -> Done:
    """Mean steps of two processes over gloo, with Strobe and without it."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [sys.executable, "-m", *launcher, "-m", "strobe.bench.suites.profiling.cells", str(folder)]
    subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
    steps = json.loads((folder / RANKS_FILE).read_text())
    return beside(2, mean(steps["watched"]), mean(steps["unwatched"]), {})


def be_rank(folder: Path) -> None:
    """Of one of those processes: trains four times; rank 0 leaves a mean step's seconds of each, watched or not."""
    quieten()
    torch.set_num_threads(1)
    steps: dict[str, list[float]] = {"watched": [], "unwatched": []}
    for watched in (*mirrored((False, True), 0), *mirrored((False, True), 1)):
        callbacks = [timed := MeanStep(), *([Attached(folder / "record")] if watched else [])]
        limits: dict[str, Any] = {"max_epochs": -1, "max_steps": RANK_STEPS, "devices": int(os.environ["WORLD_SIZE"])}
        trainer = Trainer(accelerator="cpu", strategy="ddp", callbacks=callbacks, **limits, **QUIET)
        trainer.fit(Tiny(), tiny_loader())
        steps["watched" if watched else "unwatched"].append(timed.seconds)
    if trainer.is_global_zero:
        (folder / RANKS_FILE).write_text(json.dumps(steps))


class MeanStep(Callback):
    """How long a mean step of a rank takes."""

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Look at the clock."""
        if trainer.global_step == RANK_FIRST:
            self._began = time.perf_counter()
        elif trainer.global_step == RANK_STEPS:
            self.seconds = (time.perf_counter() - self._began) / (RANK_STEPS - RANK_FIRST)


class Attached(Strobe):
    """As it watches a script, without its verdict."""

    def _end(self, trainer: Any, *_: Any) -> None:
        self._each(trainer, "on_exception")
        self._let_go()


def tiny_step(*watching: Callback | Profiler) -> float:
    """Seconds of a step of a training that does next to nothing, with callbacks, or a profiler of Lightning's."""
    callbacks = [one for one in watching if isinstance(one, Callback)]
    profiler = next((one for one in watching if isinstance(one, Profiler)), None)
    meter = Meter(TINY, warmup=20)
    trainer = Trainer(
        accelerator="cpu", max_epochs=-1, profiler=profiler, callbacks=[*callbacks, Stepping(meter.add)], **QUIET
    )
    trainer.fit(Tiny(), tiny_loader())
    return 1 / meter.rate().median


def tiny_loader() -> DataLoader[Any]:
    """Batches of one number."""
    return DataLoader(TensorDataset(torch.randn(4000, 1)), batch_size=1)


class Tiny(LightningModule):
    """So little work that a callback's microseconds show."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 2)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """A loss."""
        return torch.as_tensor(self.layer(batch[0]).sum())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The cheapest."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


@contextmanager
def traces(trial: Trial, *, options: Mapping[str, Any]) -> Iterator[Work]:
    """Recorded steps beside the waiting ones of the same training; with bytes a step and the stall at a cycle's end."""
    cfg = _configured(trial)

    def repeat() -> Done:
        profiler = Timed(trial.scratch / "traces", **CYCLE, **options)
        train(cfg, trial.scratch, profiler)
        size = median(path.stat().st_size / CYCLE["active"] for path in profiler.traces)
        more = {"bytes": size, "stall": median(profiler.stalls)}
        return beside(cfg.data.batch_size, median(profiler.watched), median(profiler.unwatched), more)

    yield Work(repeat, once=True)


class Timed(TraceProfiler):
    """Notes how long steps take, and its own work at their ends."""

    def on_train_start(self, *arguments: Any) -> None:
        """Begin."""
        super().on_train_start(*arguments)
        self.watched, self.unwatched, self.stalls = list[float](), list[float](), list[float]()  # seconds
        self._step = 0
        self._since = time.perf_counter()

    def on_train_batch_end(self, *arguments: Any) -> None:
        """A step ends before this callback's own work, and the next begins after it."""
        now, cycle, first = time.perf_counter(), self.cycle, self._step < self.schedule.skip_first
        if self._tracing.active:
            self.watched.append(now - self._since)
        elif not self.recording and not first:
            self.unwatched.append(now - self._since)
        super().on_train_batch_end(*arguments)
        self._step += 1
        self._since = time.perf_counter()
        if self.cycle > cycle:
            self.stalls.append(self._since - now)


@contextmanager
def spans(trial: Trial, *, recorded: bool) -> Iterator[Work]:
    """Loading alone, in this process, where every microsecond counts: batch by batch with and without spans.

    Recorded ones are held against those that are switched off, and these against none; ``span`` is what one takes.
    """
    cfg = _configured(trial, "engine=torch", "engine.num_workers=0")
    parts = build(cfg, trial.scratch)
    parts.data.trainer = parts.trainer
    times = _loading(parts.data.batches("train", parts.data.batch_size, shuffle=True, endless=True))
    recorder, numbers, size = SpanFolder(trial.scratch), count(), parts.data.batch_size

    def mark() -> None:
        with span("read", 1):
            pass

    def one(watched: bool) -> Done:
        if recorded or watched:
            recorder.start()
            recorder.switch(recorded and watched)
        else:
            recorder.close()
        next(times)  # pays for the change
        seconds = median(next(times) for _ in range(8))
        each = min(timeit.repeat(mark, number=2_000, repeat=3)) / 2_000 if watched else 0.0
        return Done(size, seconds, {"span": each, "share": 2 * size * each / seconds})  # read and decode, a file

    try:
        yield Work(lambda: by_turns(one, numbers))
    finally:
        recorder.close()


def _loading(batches: Any) -> Iterator[float]:
    """Seconds of each batch."""
    since = time.perf_counter()
    for _ in batches:
        yield time.perf_counter() - since
        since = time.perf_counter()


@contextmanager
def python(trial: Trial, *, kind: str) -> Iterator[Work]:
    """What a Python profile does to a step, and to the share of it that loading seems to take."""
    cfg, numbers, shares = _configured(trial), count(), dict[bool, float]()

    def one(watched: bool) -> Done:
        folder = trial.scratch / ("watched" if watched else "unwatched")
        folder.mkdir()
        profiler = [PythonProfiler(folder, kind=kind, skip_first=2, steps=NEVER)] if watched else []
        train(cfg, folder, *profiler, StepRecorder(folder / "steps.csv"))
        rows = read_table(folder / "steps.csv").rows()[FIRST:]
        shares[watched] = median(row["data_wait"] / row["total"] for row in rows)
        return Done(cfg.data.batch_size, median(row["total"] for row in rows))

    def repeat() -> Done:
        done = by_turns(one, numbers)
        own = {"share": shares[True], "share_unwatched": shares[False]}
        return Done(done.images, done.seconds, {**done.figures, **own})

    yield Work(repeat, once=True)


def _configured(trial: Trial, *own: str) -> DictConfig:
    quieten()
    defaults = (f"trainer.max_steps={STEPS}", "logger=csv", "trainer.enable_progress_bar=false")
    return configure([*defaults, *trial.overrides, *own])


def train(cfg: DictConfig, folder: Path, *besides: Callback) -> None:
    """The application's training with further callbacks, the last of which does not see itself profiled."""
    torch.manual_seed(0)
    fit(build(cfg, folder), *besides, without=StepRecorder)


if __name__ == "__main__":
    be_rank(Path(sys.argv[1]))
