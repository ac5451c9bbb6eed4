"""``suite=overhead``: the application's training step against a plain PyTorch loop's, timers and traces on and off."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from omegaconf import DictConfig

from strobe.bench.harness.declare import Cell, Done, Input, Plan, Request, Suite, Table, Visit, Work
from strobe.bench.inputs import find_data
from strobe.bench.training.overhead import APPLICATION, PLAIN, RECORDING, UNTIMED, WAITING, conclude

VARIANTS = (PLAIN, APPLICATION, UNTIMED, WAITING, RECORDING)
NEVER = 10**9  # steps
MOST = 200  # timed steps: a trace must be able to hold them
QUICK, FULL = 1.0, 5.0  # seconds timed in a visit


def declare(cfg: DictConfig) -> Suite:
    """One row, a cell for each way of training."""
    seconds = cfg.turn_seconds or (QUICK if cfg.quick else FULL)
    threads = cfg.threads or len(os.sched_getaffinity(0))
    cells: list[Cell] = []
    for variant in VARIANTS:
        make = partial(train, variant=variant, seconds=seconds)
        against = cells[0].name if cells else None
        cells.append(Cell("training", f"batch {cfg.data.batch_size}", variant, make, threads, against=against))
    return Suite(
        name="overhead",
        title="What the application costs",
        about="The same steps over the same batches, with the same data, loading, network and optimizer: written by "
        "hand in plain PyTorch, and trained by the application with all its callbacks and its logger. Then without the "
        "phase timers that write steps.csv; with a trace callback that waits all the time; and with one that records "
        f"all the time, less the writing of its file. A visit times {seconds:g} s of one training, or {MOST} steps, "
        "after its first steps; its seconds are those of a step.",
        cells=cells,
        tables=[Table("training", "Training steps, each with more around them")],
        quick=Plan(rounds=2, turn=QUICK, budget=40),
        full=Plan(rounds=15, turn=FULL, budget=900),
        find=_find,
        conclude=conclude,
        varies={
            "profiler": "none, or measure other profilers by python -m strobe.bench.profiling,",
            "trainer.max_epochs": "turn_seconds=S",
            "trainer.max_steps": "turn_seconds=S",
        },
    )


def _find(asked: Request, scratch: Path) -> Input:
    """The images, enough for a batch; both ways of training can be configured so.

    Raises:
        StrobeError: a value cannot work, or images are missing.
    """
    from strobe.bench.training.cells import ready
    from strobe.bench.training.sizes import require_batch

    found = find_data(asked, scratch)
    size = ready([*found.overrides, *asked.overrides], plain=True).data.batch_size
    require_batch(size, found, "data.batch_size=N")
    return found


@contextmanager
def train(visit: Visit, *, variant: str, seconds: float) -> Iterator[Work]:
    """A training of one kind, which warms itself up."""
    from strobe.bench.training.cells import apply, plainly, ready
    from strobe.callbacks import StepRecorder, TraceProfiler

    cfg = ready(visit.overrides, plain=True)
    with TemporaryDirectory(prefix="strobe-") as scratch:
        folder = Path(scratch)
        traces = folder / "traces"
        run = {
            PLAIN: partial(plainly, cfg, folder, seconds),
            APPLICATION: partial(apply, cfg, folder, seconds),
            UNTIMED: partial(apply, cfg, folder, seconds, without=StepRecorder),
            WAITING: partial(apply, cfg, folder, seconds, TraceProfiler(traces, skip_first=NEVER)),
            RECORDING: partial(apply, cfg, folder, seconds, TraceProfiler(traces, wait=0, active=NEVER)),
        }[variant]

        def repeat() -> Done:
            window = run(most=MOST)
            size = cfg.data.batch_size
            return Done(size, window.seconds * size / window.images, {"steps": window.steps})

        yield Work(repeat, warm_up=lambda: None, once=True)
