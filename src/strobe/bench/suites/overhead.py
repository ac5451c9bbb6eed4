"""``suite=overhead``: the application's training step against a plain PyTorch loop's, timers and traces on and off."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from strobe.bench.harness.declare import Done, Input, Plan, Request, Suite, Table, Trial, Work, row
from strobe.bench.harness.results import by_round, known
from strobe.bench.inputs import find_data, require_batch

PLAIN = "plain loop"
APPLICATION = "application"
UNTIMED = "application without phase timers"
WAITING = "application, trace waiting"
RECORDING = "application, trace recording"
PAIRS = (  # what is asked, by what is held against what
    ("The application against a plain PyTorch loop", APPLICATION, PLAIN),
    ("Phase timers on against off", APPLICATION, UNTIMED),
    ("A trace callback that waits against none", WAITING, APPLICATION),
    ("A trace that records against one that waits", RECORDING, WAITING),
)
NEVER = 10**9  # steps
MOST = 200  # timed steps: a trace must be able to hold them
QUICK, FULL = 1.0, 5.0  # seconds timed in a trial


def declare(cfg: DictConfig) -> Suite:
    """One row, a cell for each way of training."""
    seconds = cfg.turn_seconds or (QUICK if cfg.quick else FULL)
    threads = cfg.threads or len(os.sched_getaffinity(0))
    ways = {
        variant: partial(train, variant=variant, seconds=seconds)
        for variant in (PLAIN, APPLICATION, UNTIMED, WAITING, RECORDING)
    }
    return Suite(
        title="What the application costs",
        about="The same steps over the same batches, with the same data, loading, network and optimizer: written by "
        "hand in plain PyTorch, and trained by the application with all its callbacks and its logger. Then without the "
        "phase timers that write steps.csv; with a trace callback that waits all the time; and with one that records "
        f"all the time, less the writing of its file. A trial times {seconds:g} s of one training, or {MOST} steps, "
        "after its first steps; its seconds are those of a step.",
        cells=row("training", f"batch {cfg.data.batch_size}", ways, threads=threads),
        tables=[Table("training", "Training steps, each with more around them")],
        quick=Plan(rounds=2, turn=QUICK, budget=40),
        full=Plan(rounds=15, turn=FULL, budget=900),
        find=_find,
        conclude=conclude,
        varies={
            "profiler": "none, or suite=profiling, which measures other profilers,",
            "trainer.max_epochs": "turn_seconds=S",
            "trainer.max_steps": "turn_seconds=S",
        },
    )


def _find(request: Request, scratch: Path) -> Input:
    """The images, enough for a batch; both ways of training can be configured so."""
    from strobe.bench.steady import ready

    source = find_data(request, scratch)
    size = ready([*source.overrides, *request.overrides], plain=True).data.batch_size
    require_batch(size, source, "data.batch_size=N")
    return source


@contextmanager
def train(trial: Trial, *, variant: str, seconds: float) -> Iterator[Work]:
    """A training of one kind, which warms itself up."""
    from strobe.bench.steady import apply, plainly, ready
    from strobe.callbacks import StepRecorder, TraceProfiler

    cfg = ready(trial.overrides, plain=True)
    folder, traces = trial.scratch, trial.scratch / "traces"
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

    yield Work(repeat, once=True)


def conclude(record: Mapping[str, Any]) -> list[str]:
    """A sentence for each question; of what was not measured, why."""
    cells = {cell["column"]: cell for cell in record["cells"]}
    sentences = []
    for question, one, other in PAIRS:
        missing = [name for name in (one, other) if not cells[name]["visits"]]
        if missing:
            sentences.append(f"{question}: not known, as {missing[0]} was not measured.")
        elif (ratio := by_round(cells[one], cells[other])) is not None:
            if ratio["low"] is None:
                verdict = "too few trials to tell"
            elif ratio["low"] <= 1 <= ratio["high"]:
                verdict = "no measurable difference"
            else:
                median = ratio["median"]
                verdict = f"a step takes {abs(1 / median - 1):.1%} {'longer' if median < 1 else 'less'}"
            times = known(ratio, len(cells[one]["visits"]), f"{{}} times as fast, {verdict}")
            sentences.append(f"{question}: {times}.")
    return sentences
